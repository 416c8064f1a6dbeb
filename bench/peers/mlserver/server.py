"""MLServer with a custom runtime and its adaptive batching. https://mlserver.readthedocs.io

`mlserver start FOLDER` starts it. As a program, this file writes the folder's settings.
"""

import base64
import json
import sys
from pathlib import Path

import engine
import numpy as np
from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Runtime(MLModel):
    async def load(self) -> bool:
        self.model = engine.Engine()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        (given,) = payload.inputs
        if engine.KIND == "jpeg":
            records = [engine.decode(base64.b64decode(text)) for text in given.data]
        else:
            records = list(np.asarray(given.data, np.float32).reshape(-1, *engine.SHAPE))
        rows = self.model.answer(records)
        flat = [number for row in rows for number in row]
        output = ResponseOutput(name="y", shape=[len(rows), len(rows[0])], datatype="FP32", data=flat)
        return InferenceResponse(model_name=self.name, outputs=[output])


if __name__ == "__main__":
    batches = engine.chosen(max_batch_size=engine.BATCH, max_batch_time=engine.WAIT_MS / 1000)
    # Without further processes the model runs in the server's own; MLServer's pool is for several models.
    pool = engine.chosen(parallel_workers=engine.WORKERS if engine.WORKERS > 1 else 0)
    ports = {"http_port": engine.PORT, "grpc_port": engine.PORTS[0], "metrics_port": engine.PORTS[1]}
    settings = {"host": "127.0.0.1", "debug": False, "use_structured_logging": False} | ports | pool
    model = {"name": "bench", "implementation": "server.Runtime"} | batches
    for name, content in (("settings", settings), ("model-settings", model)):
        Path(sys.argv[1], f"{name}.json").write_text(json.dumps(content))
