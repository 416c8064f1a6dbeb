"""The passages whose meaning is nearest to that of a query, best first, by the cosine of embeddings."""

import json

import numpy as np


class Handler:
    inputs = {"query": "str", "count": "int64"}
    outputs = {"found": "str"}  # JSON

    def load(self, context):
        self.model = context.load("model.onnx", text=True, pooling="mean", normalize=True)
        self.passages = json.loads((context.folder / "passages.json").read_text())
        self.vectors = np.load(context.folder / "vectors.npy")

    def predict(self, batch):
        # The queries of all requests are embedded together, and compared by one product.
        scores = self.model({"text": batch["query"]})["embedding"] @ self.vectors.T
        return {"found": [self.best(*pair) for pair in zip(scores, batch["count"], strict=True)]}

    def best(self, scores, count):
        return [self.passages[at] | {"score": scores[at]} for at in np.argsort(-scores)[:count].tolist()]
