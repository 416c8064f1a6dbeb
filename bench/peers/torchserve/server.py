"""TorchServe with a custom handler and its batching (batchSize, maxBatchDelay). https://pytorch.org/serve

TorchServe parses JSON bodies itself.
"""

import json
import sys
from pathlib import Path

import engine


class Handler:
    """The handler; `torch-model-archiver` packs this file."""

    def initialize(self, context: object) -> None:
        self.model = engine.Engine()

    def handle(self, data: list, context: object) -> list:
        bodies = [row.get("body", row.get("data")) for row in data]
        records = [
            engine.decode_request(body) if isinstance(body, dict) else engine.read(bytes(body)) for body in bodies
        ]
        return [json.dumps({"predictions": [row]}) for row in self.model.answer(records)]


def main(folder: str) -> None:
    """Write the server's settings."""
    model = {"defaultVersion": True, "marName": "bench.mar", "responseTimeout": 60}
    model |= {"minWorkers": engine.WORKERS, "maxWorkers": engine.WORKERS}
    model |= {"batchSize": engine.BATCH, "maxBatchDelay": engine.WAIT_MS}
    http, management, metrics, *grpc = engine.PORT, *engine.PORTS
    settings = {
        "inference_address": f"http://127.0.0.1:{http}",
        "management_address": f"http://127.0.0.1:{management}",
        "metrics_address": f"http://127.0.0.1:{metrics}",
        "grpc_inference_port": grpc[0],
        "grpc_management_port": grpc[1],
        "load_models": "bench.mar",
    } | engine.chosen(models=json.dumps({"bench": {"1": model}}), number_of_netty_threads=2)
    Path(folder, "config.properties").write_text("\n".join(f"{key}={value}" for key, value in settings.items()))


if __name__ == "__main__":
    main(sys.argv[1])
