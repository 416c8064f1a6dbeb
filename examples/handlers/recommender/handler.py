"""Recommendations: the items nearest to those that a user liked, from an index in memory; JSON as the answer.

Beside this file, written by build.py, which need not be here: items.txt with the name of an item per line, and
vectors.npy with its vector, float32 (items, dimensions), of length 1.
"""

import numpy as np

from cluster_serving.job.handlers import InvalidInput

MOST_LIKED, MOST_WANTED = 100, 100


class Handler:
    inputs = {"liked": "str[?]", "count": "int64"}
    outputs = {"items": "str"}  # JSON

    def load(self, context):
        self.names = (context.folder / "items.txt").read_text("utf8").splitlines()
        self.rows = {name: row for row, name in enumerate(self.names)}
        self.vectors = np.load(context.folder / "vectors.npy")

    def preprocess(self, request):
        liked, count = request["liked"], int(request["count"])
        if not 1 <= len(liked) <= MOST_LIKED:
            raise InvalidInput(f"liked has {len(liked)} items; expected 1 to {MOST_LIKED}")
        if not 1 <= count <= MOST_WANTED:
            raise InvalidInput(f"count is {count}; expected 1 to {MOST_WANTED}")
        if unknown := [name[:32] for name in liked if name not in self.rows]:
            raise InvalidInput(f"liked has unknown items: {', '.join(unknown[:5])}")
        rows = [self.rows[name] for name in liked]
        return {"query": self.vectors[rows].mean(axis=0), "liked": rows, "count": count}

    def predict(self, batch):
        scores = batch["query"] @ self.vectors.T
        for row, liked in zip(scores, batch["liked"], strict=True):
            row[liked] = -np.inf
        count = min(int(batch["count"].max()), scores.shape[1])
        best = np.argpartition(-scores, count - 1, axis=1)[:, :count]  # not sorted: there may be millions
        return {"best": best, "scores": np.take_along_axis(scores, best, axis=1), "count": batch["count"]}

    def postprocess(self, result):
        order = np.argsort(-result["scores"])[: result["count"]]
        found = [(self.names[result["best"][at]], float(result["scores"][at])) for at in order]
        return {"items": [{"item": name, "score": score} for name, score in found if np.isfinite(score)]}
