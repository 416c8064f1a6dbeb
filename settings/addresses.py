"""Addresses of services: Redis, Flink and the HTTP front end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from pydantic import AfterValidator

from cluster_serving.protocol.redis import addresses
from cluster_serving.protocol.redis.url import check_login

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names that this machine has for itself; no other machine can connect to them."""

_TLS = frozenset(f"ssl_{name}" for name in ("ca_certs", "certfile", "keyfile", "cert_reqs", "check_hostname"))
_SENTINEL = frozenset({"sentinel_username", "sentinel_password"})
_SECRET = re.compile(r"(sentinel_password=)[^&]*")


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port of a service."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Address:
        """Return host and port of a complete URL."""
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port or 0)

    @property
    def is_local(self) -> bool:
        """True if the host is a loopback name. The launcher starts services only at such an address."""
        return self.host in LOOPBACK

    @property
    def spellings(self) -> tuple[Address, ...]:
        """All addresses that mean the same service: one for each loopback name, or this address alone."""
        return tuple(Address(host, self.port) for host in LOOPBACK) if self.is_local else (self,)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def redis_url(text: str) -> str:
    """Complete `host:port` to a URL that redis-py takes; raise `ValueError` if the text is no address of a Redis."""
    text = text.strip()
    check_login(text)
    if addresses.is_failover_url(text):
        _check_query(urlsplit(text).query, _TLS | _SENTINEL)
        addresses.parse(text)
        return text
    url = _split(text, ("redis", "rediss"))
    _check_query(url.query, _TLS)
    if not re.fullmatch(r"/?\d*", url.path):
        raise ValueError("the path is not a database number")
    user, at, _ = url.netloc.rpartition("@")
    return urlunsplit(
        (url.scheme, f"{user}{at}{Address(url.hostname or '', url.port or 6379)}", url.path, url.query, "")
    )


def flink_url(text: str) -> str:
    """Complete `host:port` to the URL of a Flink REST endpoint, without a slash at its end."""
    url = _split(text.strip(), ("http", "https"))
    _check_query(url.query, frozenset())
    # Flink's client takes no IPv6 address.
    host = "localhost" if url.hostname == "::1" else url.hostname or ""
    return f"{url.scheme}://{Address(host, url.port or 8081)}{url.path.rstrip('/')}"


def redacted(url: str) -> str:
    """Return the URL with `***` in place of user and password, for messages and logs."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    secret, at, host = rest.rpartition("@")
    return _SECRET.sub(r"\1***", f"{scheme}{separator}{'***@' if at and secret else ''}{host}")


def _split(text: str, schemes: tuple[str, ...]) -> SplitResult:
    url = urlsplit(text if "://" in text else f"{schemes[0]}://{text}")
    if url.scheme not in schemes or url.fragment or not re.fullmatch(r"[\w.:%-]+", url.hostname or ""):
        raise ValueError("not an address")
    return url


def _check_query(query: str, names: frozenset[str]) -> None:
    if any(name not in names for name, _ in parse_qsl(query, keep_blank_values=True)):
        raise ValueError(f"the address has a parameter that is not one of {', '.join(sorted(names)) or '(none)'}")


RedisUrl = Annotated[str, AfterValidator(redis_url)]
"""Address of Redis, completed to a URL."""

FlinkUrl = Annotated[str, AfterValidator(flink_url)]
"""Address of Flink's REST endpoint, completed to a URL."""
