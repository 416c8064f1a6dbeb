"""LitServe with its batching: max_batch_size and batch_timeout. https://lightning.ai/docs/litserve

LitServe parses JSON before its workers get a request, so images come as base64.
"""

import engine
import litserve as ls


class Api(ls.LitAPI):
    def setup(self, device: str) -> None:
        self.model = engine.Engine()

    def decode_request(self, request: dict) -> object:
        return engine.decode_request(request)

    def batch(self, inputs: list) -> list:
        return inputs

    def predict(self, x: object) -> list:
        return self.model.answer(x)

    def unbatch(self, output: list) -> list:
        return output

    def encode_response(self, output: list) -> dict:
        return {"predictions": [output]}


if __name__ == "__main__":
    api = Api(**engine.chosen(max_batch_size=engine.BATCH, batch_timeout=engine.WAIT_MS / 1000))
    server = ls.LitServer(api, accelerator="cpu", **engine.chosen(workers_per_device=engine.WORKERS))
    server.run(host="127.0.0.1", port=engine.PORT, generate_client_file=False, log_level="warning")
