"""What the protocols share: the options, the jobs behind them, and who may ask."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cluster_serving.frontend.api.metrics import Metrics
from cluster_serving.frontend.api.v2.service import KServe
from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.frontend.models.health import Health
from cluster_serving.frontend.models.registry import ModelRegistry, Servable, read_servables
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server import tls
from cluster_serving.frontend.server.admission import ConcurrencyLimit, TokenBucket
from cluster_serving.frontend.server.keys import Keys
from cluster_serving.frontend.server.offload import Offload
from cluster_serving.protocol.errors import InvalidInput


class FrontEnd:
    """One front end; used by one event loop.

    Args:
        options: How it behaves.

    Attributes:
        options: The same.
        dispatch: The way to the jobs.
        registry: The models.
        metrics: What is counted.
        health: Whether the jobs answer.
        keys: API keys; None if anybody may ask.
        on_close: What else is to be closed with it.
        offload: Where work on large bodies is done.
        kserve: What answers the v2 protocol, over HTTP and gRPC.

    Raises:
        KeysError: The file of API keys cannot be used.
        ServablesError: The file of servables cannot be used.
        TlsError: The certificates for Redis cannot be used.
    """

    def __init__(self, options: HttpOptions) -> None:
        self.options = options
        servables: tuple[Servable, ...] = ()
        url = options.redis_address
        if options.servable_manager_conf_path:
            servables = read_servables(Path(options.servable_manager_conf_path))
            if servables[0].redis and not options.redis_url and "redis_host" not in options.model_fields_set:
                url = f"{url.partition('://')[0]}://{quote(servables[0].redis, safe=':')}"
        settings: dict[str, Any] = {}
        if options.rediss_trust_store_path:
            store = tls.certificates(options.rediss_trust_store_path, options.rediss_trust_store_token)
            settings["ssl_ca_data"] = store
        self.metrics = Metrics()
        self.keys = Keys(Path(options.api_keys_file)) if options.api_keys_file else None
        self.on_close: list[Callable[[], Awaitable[None]]] = []
        self._buckets: dict[str, TokenBucket] = {}
        default = options.redis_input_queue
        self.dispatch = Dispatch(
            url,
            [servable.job for servable in servables] or options.models or (default,),
            ConcurrencyLimit(options.parallelism),
            window=options.time_window / 1000,
            window_count=options.count_window or sys.maxsize,
            observe=self.metrics.redis,
            redis_options=settings,
        )
        self.registry = ModelRegistry(self.dispatch, options.models, default, servables)
        self.health = Health(self.registry, self.dispatch, options.canary_interval, options.canary_timeout)
        self.dispatch.on_answer = self.health.note_answer
        self.offload = Offload()
        self.kserve = KServe(self.registry, self.dispatch, options, self.health, self.metrics, self.offload)

    async def close(self) -> None:
        """Close the connections."""
        for close in self.on_close:
            await close()
        await self.health.close()
        await self.dispatch.close()
        await self.offload.close()

    def bucket(self, client: str) -> TokenBucket:
        """What limits the rate of a client.

        Args:
            client: Name of its API key; without keys all clients are one.
        """
        if client not in self._buckets:
            options = self.options
            self._buckets[client] = TokenBucket(options.tokens_per_second, options.token_acquire_timeout / 1000)
        return self._buckets[client]

    def timeout(self, asked: str | None) -> float:
        """Seconds that a request may take.

        Args:
            asked: Header X-Timeout-Ms.

        Raises:
            InvalidInput: It is not a number of milliseconds.
        """
        longest = self.options.request_timeout / 1000
        if asked is None:
            return longest
        try:
            seconds = float(asked) / 1000
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < float("inf"):
            raise InvalidInput(f"the header X-Timeout-Ms is {asked[:32]!r}; expected a number of milliseconds above 0")
        return min(seconds, longest)
