"""LitServe with its batching: max_batch_size and batch_timeout. https://lightning.ai/docs/litserve"""

import engine
import litserve as ls
import numpy as np
from starlette.requests import Request


class Api(ls.LitAPI):
    def setup(self, device: str) -> None:
        self.model = engine.Engine()

    async def decode_request(self, request: Request) -> np.ndarray:
        return engine.read(await request.body())

    def batch(self, inputs: list) -> list:
        return inputs

    def predict(self, x: list) -> list:
        return self.model.answer(x)

    def unbatch(self, output: list) -> list:
        return output

    def encode_response(self, output: list) -> dict:
        return {"predictions": [output]}


if __name__ == "__main__":
    api = Api(max_batch_size=engine.BATCH, batch_timeout=engine.WAIT_MS / 1000)
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=engine.WORKERS)
    server.run(host="127.0.0.1", port=engine.PORT, generate_client_file=False, log_level="warning")
