"""Redis behind Sentinels, and Redis Clusters: connections that look up the master's address whenever they connect.

All keys of a job are on one node: the master of the Sentinels, or, in a cluster, the owner of one hash slot, since the
job's name has braces. So ordinary connections to that node suffice. When the master changes, a connection breaks or
is refused, and the next one looks up the address again. redis-py's Sentinel support lacks the cluster, a blocking
asyncio pool, and the errors below other than READONLY.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis
import redis.asyncio
from redis.connection import Connection, SSLConnection, parse_url
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from cluster_serving.protocol.redis.tls import WrongTLS, told
from cluster_serving.protocol.redis.url import check_login

Node = tuple[str, int]

_SCHEME = re.compile(r"(rediss?)\+(sentinel|cluster)")
_PORTS = {"sentinel": 26379, "cluster": 6379}
_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[\w.-]+")
_TAG = re.compile(r"\{[^{}]+\}")
# Errors of a node that is not the master of the keys any more, or not yet. redis-py 5 has no classes for most of them.
_NOT_MASTER = ("MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN ", "READONLY ", "MASTERDOWN ", "UNBLOCKED ")
_NOT_MASTER_ERRORS = (AskError, ClusterDownError, ReadOnlyError, TryAgainError)


@dataclass(frozen=True)
class FailoverUrl:
    """`redis+sentinel://[user:password@]host:26379,.../service[/db]` or `redis+cluster://[user:password@]host:6379,...`.

    `rediss+` instead of `redis+` means TLS, to Redis and to Sentinels. Query parameters are those of redis-py's URLs,
    and `sentinel_username` and `sentinel_password`.

    Attributes:
        nodes: Host and port of Sentinels, or of some nodes of the cluster.
        service: Name of the master at the Sentinels; empty for a cluster.
        plain: Ordinary URL, with the first node in place of the master.
        sentinel_login: `username` and `password` for the Sentinels.
    """

    nodes: tuple[Node, ...]
    service: str
    plain: str
    sentinel_login: dict[str, str]

    def __str__(self) -> str:
        nodes = ",".join(f"{host}:{port}" for host, port in self.nodes)
        return f"{nodes}/{self.service}" if self.service else nodes


def is_failover_url(url: str) -> bool:
    """Return True for a URL of Sentinels or of a cluster; redis-py reads other URLs."""
    return bool(_SCHEME.fullmatch(url.partition("://")[0]))


def is_cluster_url(url: str) -> bool:
    """Return True for the URL of a Redis Cluster."""
    scheme = _SCHEME.fullmatch(url.partition("://")[0])
    return scheme is not None and scheme[2] == "cluster"


def parse(url: str) -> FailoverUrl:
    """Parse the URL of Sentinels or of a cluster, or raise a `ValueError`."""
    check_login(url)
    parts = urlsplit(url)
    scheme = _SCHEME.fullmatch(parts.scheme)
    if not scheme or parts.fragment:
        raise ValueError("expected redis+sentinel://host:port,.../service or redis+cluster://host:port,...")
    kind = scheme[2]
    login, at, hosts = parts.netloc.rpartition("@")
    nodes = tuple(_node(text, _PORTS[kind]) for text in hosts.split(","))
    path = parts.path.strip("/").split("/")
    service, database = (path[0], path[1:]) if kind == "sentinel" else ("", path if path != [""] else [])
    if kind == "sentinel" and not service:
        raise ValueError("the name of the master is missing: expected redis+sentinel://host:port,.../service")
    if len(database) > 1 or not all(number.isdecimal() for number in database):
        raise ValueError("expected a database number at the end of the path, or nothing")
    if kind == "cluster" and database not in ([], ["0"]):
        raise ValueError("a Redis Cluster has database 0 only")
    query = parse_qsl(parts.query)
    sentinel = {name.removeprefix("sentinel_"): value for name, value in query if name.startswith("sentinel_")}
    others = urlencode([pair for pair in query if not pair[0].startswith("sentinel_")])
    host, port = nodes[0]
    place = f"{login}{at}[{host}]:{port}" if ":" in host else f"{login}{at}{host}:{port}"
    plain = urlunsplit((scheme[1], place, f"/{database[0] if database else 0}", others, ""))
    return FailoverUrl(nodes, service, plain, sentinel)


def pool_settings(url: str, job: str, settings: dict[str, Any], asynchronous: bool = False) -> dict[str, Any]:
    """Return arguments of a connection pool, or of one of `redis.asyncio`, whose connections look up the master.

    The settings are further arguments of the connections; those in the URL have precedence.

    Raises:
        ValueError: If the URL cannot be parsed, or the job's name lacks braces for a cluster.
    """
    parsed = parse(url)
    if not parsed.service and not _TAG.search(job):
        raise ValueError(
            f"jobName is {job!r}; in a Redis Cluster it needs braces, such as '{{{job or 'serving_stream'}}}', which "
            "keep all keys of the job on one node"
        )
    merged: dict[str, Any] = settings | parse_url(parsed.plain) | {"protocol": 2}  # type: ignore[no-untyped-call]
    tls = merged.pop("connection_class", Connection) is SSLConnection
    finder = MasterFinder(parsed, job, tls, merged)
    kind: type = _CLASSES[tls, asynchronous]
    return merged | {"connection_class": kind, "finder": finder}


class MasterFinder:
    """Looks up the master at the nodes of a `FailoverUrl`, one after the other.

    In a cluster, the name of the job determines the hash slot. The settings are those of the connections to Redis.
    """

    def __init__(self, url: FailoverUrl, job: str, tls: bool, settings: dict[str, Any]) -> None:
        self._url = url
        self._slot: int = key_slot(job.encode())
        kept = ("ssl_", "socket_timeout", "socket_connect_timeout", *(() if url.service else ("username", "password")))
        self._settings = {name: value for name, value in settings.items() if name.startswith(kept)}
        self._settings |= url.sentinel_login if url.service else {}
        self._settings["ssl"] = tls
        self._question = ("SENTINEL GET-MASTER-ADDR-BY-NAME", url.service) if url.service else ("CLUSTER SLOTS",)

    def __str__(self) -> str:
        return str(self._url)

    def find(self) -> Node:
        """Return host and port of the master, or raise a `ConnectionError` if no node knows it."""
        problems = []
        for host, port in self._url.nodes:
            try:
                with redis.Redis(host=host, port=port, **self._settings) as client:
                    client.connection_pool.connection_class = told(client.connection_pool.connection_class)
                    reply = client.execute_command(*self._question)
                    if master := self._read(reply, host):
                        return master
            except WrongTLS:
                # All nodes are asked in the same way.
                raise
            except (RedisError, OSError) as error:
                problems.append(f"{host}:{port}: {error}")
        raise self._unknown(problems)

    async def find_async(self) -> Node:
        """Return host and port of the master: the asyncio variant of `find`."""
        problems = []
        for host, port in self._url.nodes:
            try:
                async with redis.asyncio.Redis(host=host, port=port, **self._settings) as client:
                    client.connection_pool.connection_class = told(client.connection_pool.connection_class, True)
                    reply = await client.execute_command(*self._question)  # type: ignore[no-untyped-call]
                    if master := self._read(reply, host):
                        return master
            except WrongTLS:
                # All nodes are asked in the same way.
                raise
            except (RedisError, OSError) as error:
                problems.append(f"{host}:{port}: {error}")
        raise self._unknown(problems)

    def _read(self, reply: Any, asked: str) -> Node | None:
        if self._url.service:
            return (_text(reply[0]), int(reply[1])) if reply else None
        for first, last, (host, port, *_), *_ in reply:
            if first <= self._slot <= last:
                # A node that does not know its own host gives an empty one.
                return _text(host) or asked, int(port)
        return None

    def _unknown(self, problems: list[str]) -> ConnectionError:
        role = f"Sentinel that knows {self._url.service!r}" if self._url.service else f"owner of slot {self._slot}"
        return ConnectionError("; ".join([f"no {role} at {self._url}", *problems]))


class _Failover:
    """A connection to the node that is the master when it connects."""

    def __init__(self, *, finder: MasterFinder, **settings: Any) -> None:
        super().__init__(**settings)
        self._finder = finder

    def _connect(self) -> Any:
        self.host, self.port = self._finder.find()
        return super()._connect()  # type: ignore[misc]

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]
        except ResponseError as error:
            if not _is_other_master(error):
                raise
            self.disconnect()  # type: ignore[attr-defined]
            raise ConnectionError(f"the master has changed: {error}") from error


class _AsyncFailover:
    """The asyncio variant of `_Failover`."""

    def __init__(self, *, finder: MasterFinder, **settings: Any) -> None:
        super().__init__(**settings)
        self._finder = finder

    async def _connect(self) -> Any:
        self.host, self.port = await self._finder.find_async()
        return await super()._connect()  # type: ignore[misc]

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)  # type: ignore[misc]
        except ResponseError as error:
            if not _is_other_master(error):
                raise
            await self.disconnect()  # type: ignore[attr-defined]
            raise ConnectionError(f"the master has changed: {error}") from error


_CLASSES: dict[tuple[bool, bool], type] = {
    (False, False): type("FailoverConnection", (_Failover, Connection), {}),
    (True, False): type("FailoverSSLConnection", (_Failover, SSLConnection), {}),
    (False, True): type("AsyncFailoverConnection", (_AsyncFailover, redis.asyncio.Connection), {}),
    (True, True): type("AsyncFailoverSSLConnection", (_AsyncFailover, redis.asyncio.SSLConnection), {}),
}
"""Connection classes by TLS and asyncio."""


def _is_other_master(error: ResponseError) -> bool:
    return isinstance(error, _NOT_MASTER_ERRORS) or str(error).startswith(_NOT_MASTER)


def _node(text: str, default_port: int) -> Node:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    if not _HOST.fullmatch(host) or not port.isdecimal():
        raise ValueError(f"{text!r} is not host:port")
    return host.strip("[]"), int(port)


def _text(raw: Any) -> str:
    return raw.decode() if isinstance(raw, bytes) else str(raw or "")
