"""Redis behind Sentinels, and Redis Clusters: connections that ask for the master's address whenever they connect.

All keys of a job are in one place: on the master that a Sentinel names, or, in a cluster, in one hash slot, because the
name of the job has braces. So an ordinary connection to that master will do. When the master changes, the connection
breaks or is refused, and the next one asks again.
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
from redis.exceptions import ConnectionError, RedisError, ResponseError

Node = tuple[str, int]

_SCHEME = re.compile(r"(rediss?)\+(sentinel|cluster)")
_PORTS = {"sentinel": 26379, "cluster": 6379}
_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[\w.-]+")
_TAG = re.compile(r"\{[^{}]+\}")
# How a Redis says that another one is responsible now, or soon.
_NOT_HERE = ("MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN ", "READONLY ", "MASTERDOWN ", "UNBLOCKED ")


@dataclass(frozen=True, slots=True)
class FailoverUrl:
    """`redis+sentinel://[user:password@]host:26379,.../service[/db]` or `redis+cluster://[user:password@]host:6379,...`.

    With `rediss+` instead of `redis+`: TLS, to Redis and to Sentinels. Query parameters are those of redis-py's URLs,
    and `sentinel_username` and `sentinel_password`.

    Attributes:
        nodes: Host and port of Sentinels, or of some nodes of the cluster.
        service: Name that the Sentinels have for the master; empty for a cluster.
        plain: URL of a Redis, with the first node in place of the master.
        sentinel_login: `username` and `password` at the Sentinels.
    """

    nodes: tuple[Node, ...]
    service: str
    plain: str
    sentinel_login: dict[str, str]

    def __str__(self) -> str:
        nodes = ",".join(f"{host}:{port}" for host, port in self.nodes)
        return f"{nodes}/{self.service}" if self.service else nodes


def is_failover_url(url: str) -> bool:
    """Whether `parse` reads it; if not, redis-py does."""
    return bool(_SCHEME.fullmatch(url.partition("://")[0]))


def is_cluster_url(url: str) -> bool:
    """Whether a URL is that of a Redis Cluster."""
    scheme = _SCHEME.fullmatch(url.partition("://")[0])
    return scheme is not None and scheme[2] == "cluster"


def parse(url: str) -> FailoverUrl:
    """Read the URL of Sentinels or of a cluster.

    Raises:
        ValueError: It is none.
    """
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
    """Arguments of a connection pool whose connections find the master.

    Args:
        url: See `FailoverUrl`.
        job: `jobName`; a cluster has its keys on one node, if it has braces.
        settings: Further arguments of the connections; what the URL says comes before them.
        asynchronous: Of `redis.asyncio`.

    Raises:
        ValueError: The URL cannot be read, or the job cannot be in a cluster.
    """
    found = parse(url)
    if not found.service and not _TAG.search(job):
        raise ValueError(
            f"jobName is {job!r}; in a Redis Cluster it needs braces, such as '{{{job or 'serving_stream'}}}', which "
            "keep all keys of the job on one node"
        )
    merged: dict[str, Any] = settings | parse_url(found.plain)  # type: ignore[no-untyped-call]
    tls = merged.pop("connection_class", Connection) is SSLConnection
    finder = MasterFinder(found, job, tls, merged)
    kind: type = _CLASSES[tls, asynchronous]
    return merged | {"connection_class": kind, "finder": finder}


class MasterFinder:
    """Asks the nodes of a `FailoverUrl`, one after the other, where the master is.

    Args:
        url: The nodes.
        job: Whose keys are looked for.
        tls: Whether the nodes speak TLS.
        settings: Of the connections to Redis.
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
        """Host and port of the master.

        Raises:
            redis.ConnectionError: No node knows it.
        """
        problems = []
        for host, port in self._url.nodes:
            try:
                with redis.Redis(host=host, port=port, **self._settings) as client:
                    reply = client.execute_command(*self._question)
                    if master := self._read(reply, host):
                        return master
            except (RedisError, OSError) as error:
                problems.append(f"{host}:{port}: {error}")
        raise self._unknown(problems)

    async def find_async(self) -> Node:
        """The asyncio variant of `find`."""
        problems = []
        for host, port in self._url.nodes:
            try:
                async with redis.asyncio.Redis(host=host, port=port, **self._settings) as client:
                    reply = await client.execute_command(*self._question)  # type: ignore[no-untyped-call]
                    if master := self._read(reply, host):
                        return master
            except (RedisError, OSError) as error:
                problems.append(f"{host}:{port}: {error}")
        raise self._unknown(problems)

    def _read(self, reply: Any, asked: str) -> Node | None:
        if self._url.service:
            return (_text(reply[0]), int(reply[1])) if reply else None
        for first, last, (host, port, *_), *_ in reply:
            if first <= self._slot <= last:
                # A node that does not know its own name gives none.
                return _text(host) or asked, int(port)
        return None

    def _unknown(self, problems: list[str]) -> ConnectionError:
        what = f"Sentinel that knows {self._url.service!r}" if self._url.service else f"owner of slot {self._slot}"
        return ConnectionError("; ".join([f"no {what} at {self._url}", *problems]))


class _Found:
    """A connection to wherever the master is when it connects."""

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
            if not _is_elsewhere(error):
                raise
            self.disconnect()  # type: ignore[attr-defined]
            raise ConnectionError(f"the master has changed: {error}") from error


class _FoundAsync:
    """The asyncio variant of `_Found`."""

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
            if not _is_elsewhere(error):
                raise
            await self.disconnect()  # type: ignore[attr-defined]
            raise ConnectionError(f"the master has changed: {error}") from error


class _FoundConnection(_Found, Connection):
    pass


class _FoundSSLConnection(_Found, SSLConnection):
    pass


class _FoundAsyncConnection(_FoundAsync, redis.asyncio.Connection):
    pass


class _FoundAsyncSSLConnection(_FoundAsync, redis.asyncio.SSLConnection):
    pass


_CLASSES: dict[tuple[bool, bool], type] = {
    (False, False): _FoundConnection,
    (True, False): _FoundSSLConnection,
    (False, True): _FoundAsyncConnection,
    (True, True): _FoundAsyncSSLConnection,
}


def _is_elsewhere(error: ResponseError) -> bool:
    return isinstance(error, redis.exceptions.ReadOnlyError) or str(error).startswith(_NOT_HERE)


def _node(text: str, default_port: int) -> Node:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    if not _HOST.fullmatch(host) or not port.isdecimal():
        raise ValueError(f"{text!r} is no host:port")
    return host.strip("[]"), int(port)


def _text(raw: Any) -> str:
    return raw.decode() if isinstance(raw, bytes) else str(raw or "")
