"""A pipeline of scikit-learn that wants a pandas frame: named columns of numbers and texts.

Beside this file: pipeline.joblib, written by `joblib.dump(pipeline, ...)`. It is a pickle: loading it runs the code
that it names, so serve only your own. `requirements.txt` has the versions that wrote it.
"""

import joblib
import pandas as pd


class Handler:
    inputs = {"age": "float32", "fare": "float32", "port": "str"}
    outputs = {"survived": "int64", "probability": "float64"}

    def load(self, context):
        self.pipeline = joblib.load(context.folder / "pipeline.joblib")

    def predict(self, batch):
        # One row per record: each value of the batch is a column.
        frame = pd.DataFrame(batch, columns=list(self.inputs))
        probability = self.pipeline.predict_proba(frame)[:, 1]
        return {"survived": (probability >= 0.5).astype("int64"), "probability": probability}
