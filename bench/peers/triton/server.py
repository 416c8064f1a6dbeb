"""Triton through PyTriton, which brings the server's binary, with its dynamic batcher.

https://triton-inference-server.github.io/pytriton
"""

import engine
import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


def runner() -> object:
    model = engine.Engine()

    @batch
    def infer(x: np.ndarray) -> dict:
        records = [engine.decode(raw.item()) for raw in x] if engine.KIND == "jpeg" else list(x)
        return {"y": np.asarray(model.answer(records), np.float32)}

    return infer


if __name__ == "__main__":
    kind = Tensor(name="x", dtype=bytes, shape=(1,)) if engine.KIND == "jpeg" else None
    kind = kind or Tensor(name="x", dtype=np.float32, shape=engine.SHAPE)
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=engine.PORT,
        grpc_port=engine.PORTS[0],
        metrics_port=engine.PORTS[1],
        exit_timeout_secs=5,
    )
    delay = DynamicBatcher(**engine.chosen(max_queue_delay_microseconds=engine.WAIT_MS * 1000))
    with Triton(config=config) as triton:
        triton.bind(
            model_name="bench",
            infer_func=[runner() for _ in range(engine.WORKERS)],
            inputs=[kind],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(-1,))],
            config=ModelConfig(max_batch_size=engine.BATCH, batcher=delay),
            strict=False,
        )
        triton.serve()
