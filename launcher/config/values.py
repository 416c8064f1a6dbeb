"""Types of the values in `config.yaml` that YAML itself does not have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from pydantic import AfterValidator, BeforeValidator

from cluster_serving.protocol import failover
from cluster_serving.protocol.encryption import RecordKey, published_key

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _size(value: Any) -> Any:
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(match[1]) << 10 * _UNITS[match[2].lower()] if match else value


def _names(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return tuple(value) if isinstance(value, list) else value


def _pair(value: Any) -> Any:
    if isinstance(value, str):
        if not value.strip():
            return None
        value = [int(part) if part.strip().isdecimal() else part for part in value.split(",")]
    return tuple(value) if isinstance(value, list) else value


def _channels(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, list) and len(value) not in (1, 3):
        raise ValueError(f"{len(value)} numbers")
    return tuple(value) if isinstance(value, list) else value


def _folder(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    value = value.removeprefix("file://")
    if "://" in value:
        raise ValueError("not on this machine")
    return value


def _not_zero(value: tuple[float, ...]) -> tuple[float, ...]:
    if 0 in value:
        raise ValueError("0 cannot divide")
    return value


def _shapes(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(tuple(shape) if isinstance(shape, list) else shape for shape in value)
    return value


def _cores(value: Any) -> Any:
    # The original's word for "not set".
    return None if value == -1 else value


def _secret_and_salt(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    secret, _, salt = value.rpartition(":")
    if value and not (secret and salt):
        raise ValueError("not two texts")
    return (secret, salt) if value else None


def _record_key(value: Any) -> Any:
    if value == "published":
        return published_key()
    pair = _secret_and_salt(value)
    return RecordKey(*pair) if isinstance(pair, tuple) else pair


Size = Annotated[int, BeforeValidator(_size)]
"""Bytes, written as a number with or without one of the units k, m, g and t (of 1024)."""

FolderPath = Annotated[str, BeforeValidator(_folder)]
"""Path of a folder, also written as file://path."""

Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""Names, written as a list or separated by commas."""

Pair = Annotated[tuple[int, int] | None, BeforeValidator(_pair)]
"""Two numbers, written as "a,b" or [a, b]; empty for none."""

Channels = Annotated[tuple[float, ...], BeforeValidator(_channels)]
"""One number for all channels of an image, or three; written as a list or a single number."""

Divisors = Annotated[Channels, AfterValidator(_not_zero)]
"""Channels, none of which is 0."""

Shapes = Annotated[tuple[tuple[int, ...], ...], BeforeValidator(_shapes)]
"""Shapes, written as a list of lists."""

RecordKeyText = Annotated[RecordKey | None, BeforeValidator(_record_key)]
"""What a key is derived from, written as "secret:salt"; or `published`, or empty for none."""

Cores = Annotated[int | None, BeforeValidator(_cores)]
"""A number of cores; empty, or -1 as in the original, for none."""

SecretAndSalt = Annotated[tuple[str, str] | None, BeforeValidator(_secret_and_salt)]
"""Two texts, written as "secret:salt"; or empty for none."""

_TLS = frozenset(f"ssl_{name}" for name in ("ca_certs", "certfile", "keyfile", "cert_reqs", "check_hostname"))
_SENTINEL = frozenset({"sentinel_username", "sentinel_password"})
_SECRET = re.compile(r"(sentinel_password=)[^&]*")
_LOCAL = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service listens.

    Attributes:
        host: Host name.
        port: TCP port.
    """

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine, so that the launcher may start the service."""
        return self.host in _LOCAL

    @property
    def spellings(self) -> tuple[Address, ...]:
        """All ways to write it that the launcher knows."""
        return tuple(Address(host, self.port) for host in _LOCAL) if self.is_local else (self,)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _split(text: str, schemes: tuple[str, ...]) -> SplitResult:
    url = urlsplit(text if "://" in text else f"{schemes[0]}://{text}")
    if url.scheme not in schemes or url.fragment or not re.fullmatch(r"[\w.:%-]+", url.hostname or ""):
        raise ValueError("not an address")
    return url


def _check_query(query: str, names: frozenset[str]) -> None:
    if any(name not in names for name, _ in parse_qsl(query, keep_blank_values=True)):
        raise ValueError(f"a parameter that is none of {', '.join(sorted(names)) or '(none)'}")


def redis_url(text: str) -> str:
    """Complete `host:port` to a URL that redis-py takes.

    Raises:
        ValueError: It is not the address of a Redis.
    """
    if failover.is_failover_url(text.strip()):
        _check_query(urlsplit(text).query, _TLS | _SENTINEL)
        failover.parse(text.strip())
        return text.strip()
    url = _split(text.strip(), ("redis", "rediss"))
    _check_query(url.query, _TLS)
    if not re.fullmatch(r"/?\d*", url.path):
        raise ValueError("the path is not a database number")
    user, at, _ = url.netloc.rpartition("@")
    return urlunsplit(
        (url.scheme, f"{user}{at}{Address(url.hostname or '', url.port or 6379)}", url.path, url.query, "")
    )


def flink_url(text: str) -> str:
    """Complete `host:port` to the URL of a Flink REST endpoint, without a slash at its end.

    Raises:
        ValueError: It is not the address of a Flink.
    """
    url = _split(text.strip(), ("http", "https"))
    _check_query(url.query, frozenset())
    return f"{url.scheme}://{Address(url.hostname or '', url.port or 8081)}{url.path.rstrip('/')}"


def address(url: str) -> Address:
    """Host and port of a complete URL."""
    parts = urlsplit(url)
    return Address(parts.hostname or "", parts.port or 0)


def redacted(url: str) -> str:
    """The URL with `***` in place of user and password, for messages and logs."""
    scheme, separator, rest = url.rpartition("://")
    secret, at, host = rest.rpartition("@")
    return _SECRET.sub(r"\1***", f"{scheme}{separator}{'***@' if at and secret else ''}{host}")


def _filter(text: str) -> str:
    if text.strip() and not re.fullmatch(r"(topN|pickTopN)\([1-9]\d*\)", text.strip()):
        raise ValueError("not a filter")
    return text.strip()


Filter = Annotated[str, AfterValidator(_filter)]
"""`topN(n)`, `pickTopN(n)` or nothing."""

RedisUrl = Annotated[str, AfterValidator(redis_url)]
"""Where Redis is, completed to a URL."""

FlinkUrl = Annotated[str, AfterValidator(flink_url)]
"""Where Flink's REST endpoint is, completed to a URL."""
