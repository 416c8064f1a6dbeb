"""A pipeline of scikit-learn that classifies texts. A joblib file is a pickle: serve only your own."""

import joblib


class Handler:
    inputs = {"text": "str"}
    outputs = {"label": "str", "probabilities": "str"}  # the second is JSON

    def load(self, context):
        self.pipeline = joblib.load(context.folder / "pipeline.joblib")

    def predict(self, batch):
        rows = self.pipeline.predict_proba(batch["text"])
        labels = self.pipeline.classes_.tolist()
        return {
            "label": [labels[row.argmax()] for row in rows],
            "probabilities": [dict(zip(labels, row.round(3).tolist(), strict=True)) for row in rows],
        }
