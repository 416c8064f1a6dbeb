"""Callbacks: results that are posted to an address that the client gave."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from cluster_serving.frontend.errors import Forbidden, StartError
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.loopback import is_loopback

log = logging.getLogger(__name__)

_PAUSES = (0.5, 2.0, 8.0)
_TIMEOUT = 10.0
_NOT_NOW = (408, 429)
"""Statuses below 500 after which another try may succeed."""


class Callbacks:
    """Posts results to the hosts that the operator allows; a client cannot make this server call any other host.

    A callback is lost with the front end that took the request; the result can still be fetched.

    Args:
        hosts: Allowed hosts, as `host` or `host:port`.

    Raises:
        StartError: If hosts are allowed, and the proxies of the environment cannot be used.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = frozenset(hosts)
        # httpx follows no redirects by default, and must not: a redirect may lead to any host.
        self._client = _client(hosts) if hosts else None
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, url: object) -> None:
        """Check an address.

        Raises:
            InvalidInput: If the value is no address.
            Forbidden: If the host is not allowed.
        """
        try:
            parts = urlsplit(url if isinstance(url, str) else "")
            place = f"{parts.hostname}:{parts.port}" if parts.port else f"{parts.hostname}"
        except ValueError:
            place = ""
        if not place or parts.scheme not in ("http", "https") or parts.username is not None:
            raise InvalidInput("'callback' is not an address; expected http://host/… or https://host/…")
        if place not in self._hosts and parts.hostname not in self._hosts:
            raise Forbidden("results may not be posted to the host of 'callback' (callbackHosts)")

    def post_later(self, url: str, content: Coroutine[Any, Any, bytes]) -> None:
        """Post a content as soon as the coroutine returns it."""
        task = asyncio.create_task(self._post(url, content))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def is_posting(self) -> bool:
        """Return True if there is something to post."""
        return bool(self._tasks)

    async def close(self) -> None:
        """Cancel what is not posted yet."""
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._client is not None:
            await self._client.aclose()

    async def _post(self, url: str, content: Coroutine[Any, Any, bytes]) -> None:
        host = urlsplit(url).hostname
        try:
            body = await content
        except ServingError as error:
            log.warning("a result was not posted to %s: %s", host, error)
            return
        assert self._client is not None  # noqa: S101 - for the type checker; `check` has allowed the host
        for pause in (*_PAUSES, None):
            try:
                response = await self._client.post(url, content=body, headers={"content-type": "application/json"})
                if response.is_success:
                    return
                problem = f"status {response.status_code}"
                if response.status_code < 500 and response.status_code not in _NOT_NOW:
                    break
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                problem = type(error).__name__
            if pause is not None:
                await asyncio.sleep(pause)
        log.warning("a result was not posted to %s: %s", host, problem)


def _client(hosts: Sequence[str]) -> httpx.AsyncClient:
    """Return a client that uses the proxies of the environment, except for hosts that are this machine itself."""
    names = {name for host in hosts for name in (host, host.rpartition(":")[0]) if is_loopback(name)}
    direct = {f"all://[{name}]" if ":" in name else f"all://{name}": None for name in names}
    try:
        return httpx.AsyncClient(timeout=_TIMEOUT, mounts=direct)
    except (httpx.InvalidURL, ValueError, ImportError) as error:
        variables = ", ".join(sorted(name for name in os.environ if name.lower().endswith("_proxy")))
        raise StartError(
            f"callbacks cannot use the proxies of the environment ({variables}): {error}; write such as "
            "HTTPS_PROXY=http://host:3128 and NO_PROXY=localhost,::1, or unset the variable"
        ) from None
