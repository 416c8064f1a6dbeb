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
            engine.decode_instance(body["instances"][0]) if isinstance(body, dict) else engine.read(bytes(body))
            for body in bodies
        ]
        return [json.dumps({"predictions": [row]}) for row in self.model.answer(records)]


def main(folder: str, port: int) -> None:
    """Write the server's settings."""
    model = {
        "bench": {
            "1": {
                "defaultVersion": True,
                "marName": "bench.mar",
                "minWorkers": engine.WORKERS,
                "maxWorkers": engine.WORKERS,
                "batchSize": engine.BATCH,
                "maxBatchDelay": engine.WAIT_MS,
                "responseTimeout": 60,
            }
        }
    }
    settings = {
        "inference_address": f"http://127.0.0.1:{port}",
        "management_address": f"http://127.0.0.1:{engine.PORTS[0]}",
        "metrics_address": f"http://127.0.0.1:{engine.PORTS[1]}",
        "grpc_inference_port": engine.PORTS[2],
        "grpc_management_port": engine.PORTS[3],
        "load_models": "bench.mar",
        "models": json.dumps(model),
        "number_of_netty_threads": 2,
    }
    Path(folder, "config.properties").write_text("\n".join(f"{key}={value}" for key, value in settings.items()))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
