"""Callbacks: results that are posted to an address that the client gave."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cluster_serving.frontend.api.requests import signature
from cluster_serving.frontend.errors import Forbidden, StartError
from cluster_serving.protocol.compat import timeout
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.host.loopback import is_loopback

if TYPE_CHECKING:
    import httpx

_TIMEOUT = 10.0
_LONGEST_URL = 2048
_PORTS = {"http": 80, "https": 443}
_NOT_NOW = (408, 429)
"""Statuses below 500 after which another attempt may succeed."""


class Refused(Exception):
    """A receiver, or the absence of one, has refused a message; the message of the exception says how.

    Attributes:
        is_final: True if no further attempt can succeed.
    """

    def __init__(self, problem: str, is_final: bool = False) -> None:
        super().__init__(problem)
        self.is_final = is_final


class Receivers:
    """Posts messages to the hosts that the operator allows; a client cannot make this server call any other host.

    Args:
        hosts: Allowed hosts, as `host` or `host:port`.
        secret: Keys that sign the messages; see `signature.keys_of`.

    Raises:
        StartError: If hosts are allowed, and the secret, or the proxies of the environment, cannot be used.
    """

    def __init__(self, hosts: Sequence[str], secret: str = "") -> None:
        # An address of a URL has no brackets.
        self._hosts = frozenset(host.lower().translate({ord("["): "", ord("]"): ""}) for host in hosts)
        # httpx follows no redirects by default, and must not: a redirect may lead to any host.
        self._client = _client(hosts) if hosts else None
        try:
            self._keys = signature.keys_of(secret)
        except ValueError as error:
            raise StartError(str(error)) from None

    def check(self, url: object) -> None:
        """Check an address.

        Raises:
            InvalidInput: If the value is no address.
            Forbidden: If the host is not allowed.
        """
        if isinstance(url, str) and len(url) > _LONGEST_URL:
            raise InvalidInput(f"'callback' has more than {_LONGEST_URL} characters")
        try:
            parts = urlsplit(url if isinstance(url, str) else "")
            place = f"{parts.hostname}:{parts.port or _PORTS.get(parts.scheme)}"
        except ValueError:
            place = ""
        if not place or not parts.hostname or parts.scheme not in ("http", "https") or parts.username is not None:
            raise InvalidInput("'callback' is not an address; expected http://host/… or https://host/…")
        if place not in self._hosts and parts.hostname not in self._hosts:
            raise Forbidden(
                f"results may not be posted to {place}, the host of 'callback': callbackHosts of this front end names "
                "the hosts, each as host or host:port"
            )

    async def post(self, url: str, message_id: str, body: bytes) -> None:
        """Post a message; its id is the same in each attempt.

        Raises:
            Refused: If the receiver does not accept it.
        """
        try:
            # The callback may have been taken by a front end that allows other hosts.
            self.check(url)
        except (InvalidInput, Forbidden) as error:
            raise Refused(str(error)) from None
        assert self._client is not None  # noqa: S101 - for the type checker; `check` has allowed the host
        import httpx  # As in `_client`.

        made = signature.headers(self._keys, message_id, int(time.time()), body)
        headers = {"content-type": "application/json", **made}
        try:
            # The body of the answer is not read, and a receiver that is slow in small steps ends, too.
            async with timeout(_TIMEOUT), self._client.stream("POST", url, content=body, headers=headers) as response:
                status = response.status_code
        except (httpx.HTTPError, httpx.InvalidURL, asyncio.TimeoutError) as error:
            raise Refused(type(error).__name__) from None
        if not response.is_success:
            raise Refused(f"status {status}", is_final=status < 500 and status not in _NOT_NOW)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()


def _client(hosts: Sequence[str]) -> httpx.AsyncClient:
    """Return a client that uses the proxies of the environment, except for hosts that are this machine itself."""
    # Imported here: few front ends post results, and httpx imports what a terminal needs.
    import httpx

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
