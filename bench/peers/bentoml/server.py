"""BentoML with its adaptive batching. https://docs.bentoml.com/en/latest/get-started/adaptive-batching.html"""

import bentoml
import engine

CONFIG = {
    "workers": engine.WORKERS,
    "traffic": {"timeout": 60, "concurrency": 256},
    "logging": {"access": {"enabled": False}},
}


@bentoml.service(**CONFIG)
class Bench:
    def __init__(self) -> None:
        self.model = engine.Engine()

    @bentoml.api(batchable=True, max_batch_size=engine.BATCH, max_latency_ms=1000, route="/predict")
    def predict(self, instances: list[list[float]]) -> list[list[float]]:
        import numpy as np

        return self.model.answer([np.asarray(row, np.float32) for row in instances])
