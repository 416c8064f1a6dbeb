"""Reranking: the candidates that mean what a query means, best first, by the cosine of embeddings.

Beside this file: model.onnx and tokenizer.json of a model that embeds sentences, as examples/sentence_model.py writes
them. Its authors say how it pools the vectors of tokens.
"""

import numpy as np

from cluster_serving.job.handlers import InvalidInput

MOST = 100  # candidates


class Handler:
    inputs = {"query": "str", "candidates": "str[?]"}
    outputs = {"ranking": "str"}  # JSON

    def load(self, context):
        self.model = context.load("model.onnx", text=True, pooling="mean", normalize=True)

    def preprocess(self, request):
        candidates = request["candidates"].tolist()
        if not 1 <= len(candidates) <= MOST:
            raise InvalidInput(f"there are {len(candidates)} candidates; expected 1 to {MOST}")
        return {"texts": [request["query"], *candidates]}

    def predict(self, batch):
        # The texts of all requests are embedded together.
        embeddings = self.model({"text": [text for texts in batch["texts"] for text in texts]})["embedding"]
        ends = np.cumsum([len(texts) for texts in batch["texts"]])
        return {"texts": batch["texts"], "embeddings": np.split(embeddings, ends[:-1])}

    def postprocess(self, result):
        query, candidates = result["embeddings"][0], result["embeddings"][1:]
        scores = candidates @ query
        return {
            "ranking": [
                {"index": index, "text": result["texts"][index + 1], "score": scores[index]}
                for index in np.argsort(-scores, kind="stable").tolist()
            ]
        }
