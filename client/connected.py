"""What all queues have: connections, one of each kind per thread and process, of which lost ones are waited out."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from cluster_serving.client.positions import recent_entries
from cluster_serving.client.subscription import Subscription
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import DEFAULT_JOB
from cluster_serving.protocol.redis.connection import Client, connect, translated
from cluster_serving.protocol.redis.dedicated import DedicatedConnection
from cluster_serving.protocol.redis.reconnecting import persistent

if TYPE_CHECKING:
    from typing_extensions import Self


RECONNECT_SECONDS = 10.0
"""Seconds for which calls without a timeout wait out a lost connection."""


_Opened = TypeVar("_Opened", Subscription, DedicatedConnection)


class Reconnecting:
    """Base of all queues: waits out lost connections.

    Args:
        db: Client of Redis.
        name: The job's `jobName`.
        reconnect: See `OutputQueue`.
    """

    def __init__(self, db: Client, name: str, reconnect: float) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"name is {name!r}; expected the jobName of a job")
        if not isinstance(reconnect, (int, float)) or not reconnect >= 0:
            raise InvalidInput(f"reconnect is {reconnect!r}; expected seconds, 0 or more")
        self.name = name
        self._client = db
        self._reconnect = reconnect
        self._reached = False

    @property
    def _retry_budget(self) -> float:
        """`retry_budget` of a `Dispatcher`, whose requests have timeouts of their own."""
        return math.inf if self._reconnect else 0.0

    @contextmanager
    def _using_redis(self, timeout: float | None = None) -> Iterator[None]:
        """Wait out a lost connection, for the timeout if there is one, and translate errors of Redis.

        A Redis that was never reached may have another address, so its error is raised soon.
        """
        seconds = self._reconnect if timeout is None else timeout
        with translated(self._client), persistent(seconds if self._reached and self._reconnect else 0.0):
            yield
        self._reached = True


class Queue(Reconnecting):
    """Base of both queues: the job's name and a thread-safe client of its Redis."""

    def __init__(
        self,
        host: str | None = None,
        port: int | str | None = None,
        name: str = DEFAULT_JOB,
        *,
        url: str | None = None,
        reconnect: float = RECONNECT_SECONDS,
        **redis_options: Any,
    ) -> None:
        self.host = host or "localhost"
        self.port = str(port or 6379)
        self._address = {"host": self.host, "port": self.port, "url": url, "job": name, **redis_options}
        self.db = connect(**self._address)
        super().__init__(self.db, name, reconnect)
        self._own_connections()
        self._recent = recent_entries(self.db, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process it makes connections of its own.
        address = {**self._address, "reconnect": self._reconnect}
        return partial(type(self), name=address.pop("job"), **address), ()

    def _own_connections(self) -> None:
        """Begin without connections: those of another process cannot be used."""
        self._process = os.getpid()
        self._threads = threading.local()
        self._opened: WeakSet[Subscription | DedicatedConnection] = WeakSet()
        self._opening = threading.Lock()

    def close(self) -> None:
        """Close the connections, those of other threads too; later calls open new ones.

        No other thread may be in a call.
        """
        with self._opening:
            opened = list(self._opened)
        for each in opened:
            each.close()
        self.db.close()

    @property
    def _subscription(self) -> Subscription:
        # A subscription connection cannot be shared, so each thread that waits has its own; after a fork, each process.
        if self._process != os.getpid():
            self._own_connections()
        if not hasattr(self._threads, "subscription"):
            self._threads.subscription = self._noted(Subscription(self.db, self.name))
        subscription: Subscription = self._threads.subscription
        return subscription

    @property
    def _connection(self) -> DedicatedConnection:
        if not hasattr(self._threads, "connection"):
            self._threads.connection = self._noted(DedicatedConnection(self.db))
        connection: DedicatedConnection = self._threads.connection
        return connection

    def _noted(self, opened: _Opened) -> _Opened:
        with self._opening:
            self._opened.add(opened)
        return opened
