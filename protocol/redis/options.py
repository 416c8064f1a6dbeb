"""The arguments for clients of Redis, checked: a misspelt or unusable one is refused by name."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from inspect import signature
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.exceptions import ConnectionError
from redis.retry import Retry

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.redis import addresses
from cluster_serving.protocol.redis.reconnecting import CHECK_AFTER, Backoff
from cluster_serving.protocol.redis.url import HINT, check_login

_OWN = ("protocol", "decode_responses")
_RETRIES = 3
# A failover takes some seconds. These retries last 2.5 s, and as long again for each attempt to connect.
_FAILOVER_RETRIES = 6


def failover_settings(url: str, job: str, settings: dict[str, Any], asynchronous: bool = False) -> dict[str, Any]:
    """Return the arguments of a pool of connections to a `failover.FailoverUrl`."""
    try:
        return addresses.pool_settings(url, job, settings, asynchronous)
    except ValueError as error:
        raise InvalidInput(str(error)) from None


def checked_url(url: str) -> str:
    """Return a URL without the options of redis-py that every connection here sets by itself.

    Raises:
        InvalidInput: If redis-py cannot parse it; the message has no part of its password.
    """
    try:
        check_login(url)
        redis.connection.parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        # The messages of the libraries may quote a part of a password.
        raise InvalidInput(
            "the url is not an address of Redis; expected redis://user:password@host:6379/0, rediss://… or unix://…; "
            f"{HINT} (urllib.parse.quote)"
        ) from None
    base, _, query = url.partition("?")
    kept = [pair for pair in query.split("&") if pair.partition("=")[0] not in _OWN]
    return f"{base}?{'&'.join(kept)}" if query and kept else base


def port_of(port: int | str) -> int:
    """Return the port, which may be a text as in the original."""
    try:
        return int(port)
    except (ValueError, TypeError):
        raise InvalidInput(f"port is {port!r}; expected a number") from None


def settings_of(host: str, url: str | None, retry: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a connection; `retry` is the class of redis-py for its kind.

    Raises:
        InvalidInput: If an option is unknown, or has no meaning here.
    """
    if "://" in host or "frontend_url" in options:
        raise InvalidInput(
            f"{options.get('frontend_url', host)!r} is not a host: this client connects to Redis, at a host and port "
            "or url=; for an HTTP front end use any HTTP client, or cluster_serving.client.original"
        )
    if "sync" in options:
        raise InvalidInput("there is no sync=; cluster_serving.client.original takes all arguments of the original")
    for name in [name for name in _UNUSABLE if options.get(name)]:
        raise InvalidInput(f"the option {name!r} of redis-py cannot be used here{_UNUSABLE[name]}")
    if url and options.get("ssl"):
        raise InvalidInput("ssl=True goes with host and port; the url of a Redis with TLS begins with rediss://")
    if not (options.get("ssl") or (url or "").lower().startswith("rediss")):
        for name, value in options.items():
            if name.startswith("ssl_") and value is not None:
                raise InvalidInput(f"the option {name!r} needs ssl=True, or a url of rediss://")
        options = {name: value for name, value in options.items() if not name.startswith("ssl_")}
    known = _options(Retry)
    for name in options.keys() & known - _options(retry):
        raise InvalidInput(f"asyncio clients, and predict_many, have no option {name!r}")
    for name in options.keys() - known:
        near = get_close_matches(name, {*known, "name", "url", "reconnect"}, 1)
        raise InvalidInput(f"there is no option {name!r}{f'; is it {near[0]!r}?' if near else ''}")
    retries = _FAILOVER_RETRIES if url and addresses.is_failover_url(url) else _RETRIES
    return {
        # XADD is not idempotent, but a request that is queued twice keeps its uri and gets the same result twice.
        # A command that timed out is repeated within `persistent` alone: elsewhere repetition would multiply the time
        # that the caller waits.
        "retry_on_error": [ConnectionError],
        "health_check_interval": CHECK_AFTER,
        "socket_connect_timeout": 5.0,
        "socket_timeout": 5.0,
        **options,
        # Newer redis-py releases default to RESP3, and then negotiate features that are not used here. Answers to
        # XREADGROUP have another form in it.
        "protocol": 2,
        # The pauses end the attempts.
        "retry": retry(Backoff(retries), -1),
    }


_UNUSABLE = {
    "decode_responses": ": results are bytes",
    "unix_socket_path": ": pass url='unix:///path/of/the/socket'",
    **dict.fromkeys(("charset", "connection_pool", "errors", "single_connection_client"), ""),
}
"""Options of redis-py that have no meaning here, and the reason or remedy."""


@cache
def _options(retry: type[Retry | AsyncRetry]) -> set[str]:
    """Return the options of the clients and connections of either kind."""
    if retry is Retry:
        return {*signature(redis.Redis).parameters, *signature(redis.connection.AbstractConnection).parameters}
    return {
        *("ssl", "max_connections"),
        *signature(redis.asyncio.Connection).parameters,
        *signature(redis.asyncio.SSLConnection).parameters,
        *signature(redis.asyncio.connection.AbstractConnection).parameters,
    }
