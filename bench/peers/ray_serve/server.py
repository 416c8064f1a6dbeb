"""Ray Serve with @serve.batch. https://docs.ray.io/en/latest/serve/advanced-guides/dyn-req-batch.html

Usage: python server.py                  serves
       python server.py MODEL VERSION    gives the running server another model. If the version is 1, as at first, Ray
                                         Serve sends the new `user_config` to each replica. Otherwise it replaces the
                                         replicas. It does either to one replica after the other.
                                         https://docs.ray.io/en/latest/serve/advanced-guides/inplace-updates.html
"""

import asyncio
import signal
import sys
import time

import engine
import ray
from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema
from starlette.requests import Request

DEPLOYMENT = engine.chosen(num_replicas=engine.WORKERS, max_ongoing_requests=256)
BATCHES = engine.chosen(max_batch_size=engine.BATCH, batch_wait_timeout_s=engine.WAIT_MS / 1000)


@serve.deployment(ray_actor_options={"num_cpus": 0}, **DEPLOYMENT)
class Model:
    async def reconfigure(self, config: dict) -> None:
        # In a thread, so that the requests that the replica has are answered meanwhile.
        self.model = await asyncio.to_thread(engine.Engine, config["model"])

    @serve.batch(**BATCHES)
    async def answer(self, bodies: list) -> list:
        return self.model.answer([engine.read(body) for body in bodies])

    async def __call__(self, request: Request) -> dict:
        return {"predictions": [await self.answer(await request.body())]}


def build(_: dict) -> serve.Application:
    """Return the application; Ray Serve replaces the replicas when the arguments have changed."""
    return Model.bind()


def deploy(model: str, version: str) -> None:
    """Do what `serve deploy` does, without the dashboard that it needs, and wait until it is done."""
    application = {
        "name": "bench",
        "route_prefix": "/predict",
        "import_path": "server:build",
        "args": {"version": version},
        "deployments": [{"name": "Model", "user_config": {"model": model}}],
    }
    _get_global_client().deploy_apps(ServeDeploySchema(applications=[application]))
    healthy_since = time.monotonic()
    # It is healthy, too, before it has begun.
    while time.monotonic() < healthy_since + 1:
        bench = serve.status().applications["bench"]
        if bench.status != "RUNNING" or any(part.status != "HEALTHY" for part in bench.deployments.values()):
            healthy_since = time.monotonic()
        time.sleep(0.1)


if __name__ == "__main__":
    if sys.argv[1:]:
        ray.init(address="auto", log_to_driver=False, configure_logging=False)
        deploy(*sys.argv[1:])
        sys.exit()
    ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": engine.PORT})
    deploy(engine.WORK["model"], "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        signal.pause()
    except KeyboardInterrupt:
        serve.shutdown()
        ray.shutdown()
