"""A connection of one thread, without the pool of redis-py."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Protocol

import redis
from redis.exceptions import RedisError, ResponseError, TimeoutError

CHECK_TIMEOUT = 1.0
"""Seconds for which a sign of life of a silent connection is waited for."""

_TRUSTED_S = 1.0


class Commands(Protocol):
    """Anything that sends commands to Redis: a client of redis-py, or a `DedicatedConnection`."""

    def execute_command(self, *args: Any) -> Any:
        """Send a command, and return its reply."""


class DedicatedConnection:
    """A dedicated connection for the commands of one thread; the first command opens it.

    A command takes half as much work as with redis-py's client, which takes a connection from its pool, checks it, and
    returns it. Here a connection is checked only after a pause, in which it may have been lost. Replies are
    as Redis sends them; redis-py's client converts those of some commands.

    Args:
        client: Client whose settings the connection has.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        self._connection = self._make()
        self._unread = 0
        # True from the sending of a command until its reply is read or counted as unread.
        self._is_midway = False
        # 0 while it is closed.
        self._trusted_until = 0.0
        # Moment at which the reply to `begin` is late; None without such a command.
        self._late_at: float | None = None

    def execute_command(self, *args: Any) -> Any:
        """Send a command, and return its reply.

        Raises:
            redis.RedisError: If Redis cannot be used, or refuses the command.
        """
        return self._connection.retry.call_with_retry(lambda: self._trip(args), self._failed)

    @property
    def waits(self) -> bool:
        """True from `begin` until `end` has the reply."""
        return self._late_at is not None

    @property
    def socket(self) -> Any:
        """The open socket, for `select`; None while the connection is closed."""
        return self._connection._sock

    def begin(self, *args: Any, limit: float) -> None:
        """Send a command that waits in Redis, for up to `limit` seconds; no other one is sent while it `waits`.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        self._connection.retry.call_with_retry(lambda: self._send(args), self._failed)
        patience = self._connection.socket_timeout or CHECK_TIMEOUT
        self._late_at = time.monotonic() + max(patience, limit + CHECK_TIMEOUT)

    def end(self, timeout: float) -> Any:
        """Return the reply to `begin`; None, and it `waits` on, if the reply does not come within `timeout` seconds.

        Raises:
            redis.RedisError: If Redis cannot be used, or refuses the command.
        """
        try:
            if self._connection.can_read(timeout=timeout):
                self._late_at = None
                return self._receive()
            if self._late_at is not None and time.monotonic() > self._late_at:
                raise TimeoutError("Redis does not answer")
        except ResponseError:
            raise
        except BaseException:
            self.close()
            raise
        return None

    def post(self, *args: Any) -> None:
        """Send a command whose outcome does not matter, and do not wait for its reply."""
        with suppress(RedisError):
            self._send(args)
            self._unread += 1
            self._is_midway = False

    def close(self) -> None:
        """Close the connection; a later command opens it again."""
        self._unread, self._is_midway, self._trusted_until, self._late_at = 0, False, 0.0, None
        self._connection.disconnect()

    def _make(self) -> Any:
        # Not counted by the pool, whose size the application may limit.
        return self._pool.connection_class(**self._pool.connection_kwargs)

    def _trip(self, args: Any) -> Any:
        self._send(args)
        return self._receive()

    def _receive(self) -> Any:
        try:
            reply = self._connection.read_response()
        except ResponseError:
            self._is_midway = False
            raise
        self._is_midway, self._trusted_until = False, time.monotonic() + _TRUSTED_S
        return reply

    def _send(self, args: Any) -> None:
        if self._is_midway:
            # Something such as Ctrl-C came between, and the next reply would be that of another command.
            self.close()
        if self._connection.pid != os.getpid():
            # After a fork, the connection is that of the other process.
            self._connection = self._make()
            self._unread, self._is_midway, self._trusted_until, self._late_at = 0, False, 0.0, None
        elif self._unread or 0 < self._trusted_until <= time.monotonic():
            self._check()
        connection = self._connection
        self._is_midway = True
        connection.send_packed_command(connection.pack_command(*args), check_health=False)

    def _check(self) -> None:
        """Read the replies to `post`; after a pause, close a connection that Redis has closed or that is dead."""
        connection = self._connection
        # Replies that are read here came before the pause.
        paused, was_silent = self._trusted_until <= time.monotonic(), getattr(connection, "is_silent", False)
        try:
            while self._unread:
                if paused and not connection.can_read(timeout=CHECK_TIMEOUT):
                    raise TimeoutError("Redis does not answer")
                with suppress(ResponseError):
                    connection.read_response()
                self._unread -= 1
            if paused and connection.can_read():
                self.close()
            elif was_silent:
                connection.verify()
        except BaseException as error:
            self.close()
            if not isinstance(error, (RedisError, OSError)):
                raise

    def _failed(self, error: Exception) -> None:
        self.close()
        if not isinstance(error, tuple(self._connection.retry_on_error)):
            raise error
