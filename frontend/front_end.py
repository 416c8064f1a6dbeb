"""What the protocols share: the options, the jobs behind them, and who may ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from cluster_serving.client.errors import InvalidInput
from cluster_serving.frontend import servables, tls
from cluster_serving.frontend.admission import Flight
from cluster_serving.frontend.gateway import Gateway
from cluster_serving.frontend.options import HttpOptions


class FrontEnd:
    """One front end; used by one event loop.

    Args:
        options: How it behaves.

    Attributes:
        options: The same.
        gateway: The jobs.

    Raises:
        ServablesError: The file of servables cannot be used.
        TlsError: The certificates for Redis cannot be used.
    """

    def __init__(self, options: HttpOptions) -> None:
        self.options = options
        names: tuple[servables.Servable, ...] = ()
        url = options.redis_address
        if options.servable_manager_conf_path:
            names = servables.read(Path(options.servable_manager_conf_path))
            if names[0].redis and not options.redis_url and "redis_host" not in options.model_fields_set:
                url = f"{url.partition('://')[0]}://{quote(names[0].redis, safe=':')}"
        settings: dict[str, Any] = {}
        if options.rediss_trust_store_path:
            store = tls.certificates(options.rediss_trust_store_path, options.rediss_trust_store_token)
            settings["ssl_ca_data"] = store
        self.gateway = Gateway(
            url,
            options.models,
            options.redis_input_queue,
            names,
            Flight(options.parallelism),
            window=options.time_window / 1000,
            window_count=options.count_window,
            **settings,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self.gateway.close()

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
