"""Ray Serve with @serve.batch. https://docs.ray.io/en/latest/serve/advanced-guides/dyn-req-batch.html"""

import signal

import engine
import ray
from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=engine.WORKERS, max_ongoing_requests=256, ray_actor_options={"num_cpus": 0})
class Model:
    def __init__(self) -> None:
        self.model = engine.Engine()

    @serve.batch(max_batch_size=engine.BATCH, batch_wait_timeout_s=engine.WAIT_MS / 1000)
    async def answer(self, bodies: list) -> list:
        return self.model.answer([engine.read(body) for body in bodies])

    async def __call__(self, request: Request) -> dict:
        return {"predictions": [await self.answer(await request.body())]}


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": engine.PORT})
    serve.run(Model.bind(), route_prefix="/predict")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        signal.pause()
    except KeyboardInterrupt:
        serve.shutdown()
        ray.shutdown()
