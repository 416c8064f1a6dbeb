"""BentoML with its adaptive batching. https://docs.bentoml.com/en/latest/get-started/adaptive-batching.html

Its batchable APIs take JSON lists, so images come as base64.
"""

import bentoml
import engine

SERVICE = engine.chosen(workers=engine.WORKERS, traffic={"timeout": 60, "concurrency": 256})
BATCHES = engine.chosen(max_batch_size=engine.BATCH, max_latency_ms=1000)
Record = dict[str, str] if engine.KIND == "jpeg" else list[float]


@bentoml.service(logging={"access": {"enabled": False}}, **SERVICE)
class Bench:
    def __init__(self) -> None:
        self.model = engine.Engine()

    @bentoml.api(batchable=True, route="/predict", **BATCHES)
    def predict(self, instances: list[Record]) -> list[list[float]]:
        return self.model.answer([engine.decode_instance(record) for record in instances])
