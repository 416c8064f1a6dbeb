"""Mosec: dynamic batching in its Rust front end. Its path is /inference. https://mosecorg.github.io/mosec/"""

import json

import engine
from mosec import Server, Worker


class Model(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.model = engine.Engine()

    def deserialize(self, data: bytes) -> object:
        return engine.read(data)

    def serialize(self, data: list) -> bytes:
        return json.dumps({"predictions": [data]}).encode()

    def forward(self, data: object) -> list:
        return self.model.answer(data)


if __name__ == "__main__":
    options = engine.chosen(num=engine.WORKERS, max_batch_size=engine.BATCH, max_wait_time=engine.WAIT_MS)
    server = Server()
    server.append_worker(Model, **options)
    server.run()
