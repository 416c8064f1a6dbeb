"""TorchServe with a handler of our own and its batching (batchSize, maxBatchDelay). https://pytorch.org/serve"""

import engine


class Handler:
    """The entry point that `torch-model-archiver` packs."""

    def initialize(self, context: object) -> None:
        self.model = engine.Engine()

    def handle(self, data: list, context: object) -> list:
        import json

        bodies = [
            bytes(row.get("body") or row.get("data")) if not isinstance(row.get("body"), dict) else row["body"]
            for row in data
        ]
        records = [
            engine.np.asarray(body["instances"][0], engine.np.float32) if isinstance(body, dict) else engine.read(body)
            for body in bodies
        ]
        return [json.dumps({"predictions": [row]}) for row in self.model.answer(records)]
