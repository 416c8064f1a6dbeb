"""The Open Inference Protocol v2 (KServe, Triton) apart from HTTP and gRPC.

Source: the "Open Inference Protocol" of KServe, and the extensions of Triton for classification, model configuration,
repository index and statistics.
"""

from collections.abc import Iterable
from typing import Any

from cluster_serving.frontend.api.v2 import metadata as v2_metadata
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import Forbidden, ModelNotFound, NotSupported
from cluster_serving.frontend.models.figures import stats
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.protocol.errors import InvalidInput, RedisUnavailable, ResultTimeout, ServingError, from_wire
from cluster_serving.protocol.hosting.control import UNLOAD

_DEPENDENTS = "unload_dependents"
"""Parameter that Triton's clients send always; no model depends on another."""


def named(name: str) -> str:
    """Return the name of a model. The protocol has no default model, which the registry takes an empty name for."""
    if not name:
        raise ModelNotFound("the request names no model")
    return name


def unsupported(call: str) -> NotSupported:
    """Return the error for a call of Triton's clients that is not served: its path, or its gRPC method."""
    return NotSupported(
        f"{call[:200]} is not supported here: there are no shared memory, and no settings of traces and logs"
    )


class V2Service:
    """Answers the calls of the protocol. Calls that name a model raise `ModelNotFound` if there is no such model."""

    def __init__(self, front: FrontEnd) -> None:
        self._front = front

    async def ready(self) -> bool:
        """Return True if Redis answers, and all jobs that this front end requires."""
        return not await self._front.health.problems()

    async def model_ready(self, name: str, version: str) -> bool:
        """Return True if the job of a model answers."""
        return not await self._front.health.problem(await self.model(name, version))

    async def model(self, name: str, version: str) -> PublishedModel:
        """Return a model, of any version if the version is empty."""
        return await self._front.registry.model(named(name), version)

    async def metadata(self, name: str, version: str) -> dict[str, Any]:
        """Return the metadata of a model."""
        model = await self.model(name, version)
        versions = [row.version for row in await self._front.registry.versions() if row.name == name]
        return v2_metadata.metadata(model, versions)

    async def config(self, name: str, version: str) -> dict[str, Any]:
        """Return the configuration of a model in the form of Triton."""
        return v2_metadata.config(await self.model(name, version))

    async def index(self, ready_only: bool = False) -> list[dict[str, Any]]:
        """Return all models and their states, or only the ready ones."""
        rows = [v2_metadata.index_row(model) for model in await self._front.registry.versions()]
        return [row for row in rows if not ready_only or row["state"] == "READY"]

    async def statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """Return the statistics of a model; of all models if the name is empty."""
        models = [await self.model(name, version)] if name else await self._front.registry.versions()
        totals = await stats(self._front.dispatch, models)
        return {"model_stats": list(map(v2_metadata.statistics, models, totals))}

    async def control(self, name: str, action: str, parameters: Iterable[str], timeout: float) -> None:
        """Load or unload a model, as `protocol.hosting.control` names the actions, in `timeout` seconds.

        Loading again serves the model's files and the configuration of its job as they are now.

        Raises:
            InvalidInput: If the request has parameters that would change the model.
            ServingError: As for `ModelControl.ask`.
        """
        front = self._front
        job, host = await self._job_of(name, action)
        if others := sorted({*parameters} - {_DEPENDENTS}):
            raise InvalidInput(
                f"the {action} has the parameters {', '.join(others)[:200]}, which are not supported: a model is "
                "loaded as its folder and the config.yaml of its job are"
            )
        try:
            await front.control.ask(host or job, action, timeout, name if host else "")
        except (Forbidden, RedisUnavailable, ResultTimeout):
            raise
        except ServingError as error:
            cause = front.told(str(error), "the log of the job's controller has the cause")
            raise from_wire(error.code, f"failed to {action} {name!r}: {cause}") from None
        finally:
            front.registry.forget()
            front.health.forget(job)

    async def _job_of(self, name: str, action: str) -> tuple[str, str]:
        """Return the job of a model, and the job that serves it among others; an empty text if none does.

        The only job that serves several is asked to load a model that is new.
        """
        try:
            model = await self.model(name, "")
        except ModelNotFound:
            hosts = {model.host for model in await self._front.registry.versions()} - {""}
            if action == UNLOAD or not name or len(hosts) != 1:
                raise
            return name, hosts.pop()
        return model.job, model.host
