"""Context that all APIs of a front end share: options, models, the way to their jobs, admission and metrics."""

import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cluster_serving.frontend.caller import has_own_limit
from cluster_serving.frontend.errors import ModelNotReady
from cluster_serving.frontend.models.control import ModelControl
from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.frontend.models.health import Health
from cluster_serving.frontend.models.registry import ModelRegistry, PublishedModel
from cluster_serving.frontend.models.servables import ServableModel, read_servables
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server import tls
from cluster_serving.frontend.server.admission.admission import Admission, ConcurrencyLimit
from cluster_serving.frontend.server.metrics import Metrics, Part
from cluster_serving.frontend.server.offload import Offload
from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.errors import from_wire
from cluster_serving.protocol.hosting.control import UNLOADED

log = logging.getLogger(__name__)

_CLOSE_TIMEOUT = 2.0


class FrontEnd:
    """One front end; used by one event loop.

    Attributes:
        on_start: Functions that are called when the front end begins to serve.
        on_close: Functions that are called when the front end closes, before the connections are closed.
        total_metrics: Coroutine function that returns the metrics of all processes of the front end.
    """

    def __init__(self, options: HttpOptions) -> None:
        self.options = options
        servables: tuple[ServableModel, ...] = ()
        url = options.redis_address
        if options.servable_manager_conf_path:
            servables = read_servables(Path(options.servable_manager_conf_path))
            if servables[0].redis and not options.redis_url and "redis_host" not in options.model_fields_set:
                url = f"{url.partition('://')[0]}://{quote(servables[0].redis, safe=':')}"
        redis_options: dict[str, Any] = {}
        if options.rediss_trust_store_path and url.startswith("rediss"):
            store = tls.certificates(options.rediss_trust_store_path, options.rediss_trust_store_token)
            redis_options["ssl_ca_data"] = store
        self.metrics = Metrics()
        self.admission = Admission(options)
        self.on_start: list[Callable[[], None]] = []
        self.on_close: list[Callable[[], Awaitable[None]]] = []
        self.offload = Offload()
        default = options.redis_input_queue
        self.dispatch = Dispatch(
            url,
            [servable.job for servable in servables] or options.models or (default,),
            ConcurrencyLimit(options.places, options.most_waiting),
            self.offload,
            window=options.time_window / 1000,
            window_count=options.count_window or sys.maxsize,
            observe=self.metrics.redis,
            redis_options=redis_options,
        )
        self.registry = ModelRegistry(self.dispatch, options.models, default, servables, options.required_models)
        self.health = Health(self.registry, self.dispatch, options.probe_interval, options.probe_timeout)
        self.dispatch.on_answer = self.health.note_answer
        self.control = ModelControl(self.dispatch)
        self.total_metrics: Callable[[], Awaitable[Part]] = self.own_metrics

    async def own_metrics(self) -> Part:
        """Return the metrics of this process."""
        limit = self.dispatch.limit
        return self.metrics.part(limit.count, limit.waiting)

    async def close(self) -> None:
        """Close the connections."""
        for close in (*self.on_close, self.health.close, self.dispatch.close, self.offload.close):
            # None of them may keep the process from its end.
            try:
                async with time_limit(_CLOSE_TIMEOUT):
                    await close()
            except Exception:
                log.exception("the front end ends nevertheless")

    def check(self, model: PublishedModel, can_wait: bool = False, needs_signature: bool = False) -> None:
        """Refuse requests for a model that no slot can load, that a client has unloaded, or whose job does not run.

        A request that `can_wait` has no caller that waits for it, so the next start of the job may answer it. One that
        `needs_signature` cannot be read before a slot has loaded the model, now or at an earlier start of its job.

        Raises:
            ModelError: If it cannot be loaded, or another error of `protocol.errors`; see `told`.
            ModelNotReady: If it was unloaded, its job does not run and is not being started, or its signature is needed
                and unknown.
        """
        if report := model.failed:
            cause = self.told(report.error or "", "the reports of its slots have the cause")
            raise from_wire(report.code or "", f"model {model.name!r} cannot be loaded: {cause}")
        if model.state == UNLOADED:
            path = f"/v2/repository/models/{quote(model.name)}/load"
            # Without `modelControl`, no client may load a model of several, which a command has unloaded.
            how = f"cluster-serving-cli update {model.name}" if model.host else f"POST {path}"
            raise ModelNotReady(f"model {model.name!r} was unloaded; {how} loads it again")
        if model.absence and not can_wait:
            raise ModelNotReady(f"model {model.name!r} is not served: {model.absence}")
        if needs_signature and model.described is None:
            raise ModelNotReady(f"model {model.name!r} is not ready: {model.state}")

    def told(self, cause: str, place: str) -> str:
        """Return the cause of a failure; the place that has it instead if an anonymous caller might read the answer."""
        return cause if self.options.is_local or self.options.api_keys_file else place

    def limited(self, seconds: float | None) -> float:
        """Return the seconds that a request may take: `requestTimeout`, or less if its client does not wait so long."""
        longest = self.options.request_timeout / 1000
        has_own_limit.set(seconds is not None and seconds < longest)
        return longest if seconds is None else min(seconds, longest)
