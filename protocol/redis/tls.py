"""Mistakes about TLS between an address and its server: found by asking the server, told soon and with a remedy."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from redis.asyncio.connection import SSLConnection as AsyncSSLConnection
from redis.connection import SSLConnection
from redis.exceptions import AuthenticationError, ConnectionError, InvalidResponse, RedisError, TimeoutError

# Seconds for which a connection waits for TLS before the server is asked whether it has any, and for that answer.
_SOON = 1.5
_NO_TLS = (
    "the server answers without TLS, which the address asks for: write redis:// instead of rediss://, or leave out ssl"
)
_NEEDS_TLS = "the server answers with TLS alone: write rediss:// instead of redis://, or ssl=True beside host and port"
_CLIENT = "the server asks for a certificate of the client: name its files with ssl_certfile and ssl_keyfile"
_FILES = "a file of ssl_ca_certs, ssl_certfile or ssl_keyfile cannot be read: "
_AUTHORITY = "name the file of the authority that signed it with ssl_ca_certs, in the address or as an option"
_NAME = "connect by a name that stands in it"
_DATE = "renew it, or correct the clock of this machine"
# By OpenSSL's codes X509_V_ERR_*: not yet valid, expired, another host name, another address.
_REMEDIES = {9: _DATE, 10: _DATE, 62: _NAME, 64: _NAME}
_UNREADABLE = (FileNotFoundError, IsADirectoryError, PermissionError)
_TIMEOUTS = (TimeoutError, asyncio.TimeoutError, socket.timeout)
_CLIENT_ALERTS = ("CERTIFICATE_REQUIRED", "ALERT_HANDSHAKE_FAILURE")


class WrongTLS(AuthenticationError):
    """The address and its server do not agree about TLS; a further attempt would find the same."""


def told(kind: type, asynchronous: bool = False) -> type:
    """Return a class of connections, made of one of redis-py, that raises mistakes about TLS as `WrongTLS`."""
    return type(kind.__name__, (_AsyncTold if asynchronous else _Told, kind), {})


class _Told:
    """A connection that raises mistakes about TLS by name."""

    socket_timeout: float | None
    _has_connected = False

    def connect(self) -> None:
        try:
            super().connect()  # type: ignore[misc]
        except (RedisError, OSError) as error:
            if mistake := _mistake(self, error):
                raise mistake from error
            raise

    def _connect(self) -> Any:
        connected = self._soon() or super()._connect()  # type: ignore[misc]
        self._has_connected = True
        connected.settimeout(self.socket_timeout)
        return connected

    def _soon(self) -> Any:
        if not _is_new(self):
            return None
        try:
            with _hurried(self):
                return super()._connect()  # type: ignore[misc]
        except _TIMEOUTS as error:
            if mistake := _mistake(self, error):
                raise mistake from error
            return None


class _AsyncTold:
    """The asyncio variant of `_Told`."""

    _has_connected = False

    async def connect(self) -> None:
        try:
            await super().connect()  # type: ignore[misc]
        except (RedisError, OSError) as error:
            if mistake := await asyncio.to_thread(_mistake, self, error):
                raise mistake from error
            raise

    async def _connect(self) -> None:
        if not await self._soon():
            await super()._connect()  # type: ignore[misc]
        self._has_connected = True

    async def _soon(self) -> bool:
        if not _is_new(self):
            return False
        try:
            with _hurried(self):
                await super()._connect()  # type: ignore[misc]
                return True
        except _TIMEOUTS as error:
            if mistake := await asyncio.to_thread(_mistake, self, error):
                raise mistake from error
            return False


def _is_new(connection: Any) -> bool:
    return _has_tls(connection) and not connection._has_connected


def _has_tls(connection: Any) -> bool:
    return isinstance(connection, (SSLConnection, AsyncSSLConnection))


@contextmanager
def _hurried(connection: Any) -> Iterator[None]:
    """Let the connection give up soon in the block."""
    waits = connection.socket_connect_timeout, connection.socket_timeout
    connection.socket_connect_timeout, connection.socket_timeout = (min(wait or _SOON, _SOON) for wait in waits)
    try:
        yield
    finally:
        connection.socket_connect_timeout, connection.socket_timeout = waits


def _mistake(connection: Any, error: BaseException) -> WrongTLS | None:
    """Return the mistake that an error of a new connection comes from, or None. It may ask the server, for seconds."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, WrongTLS):
            # redis-py wraps errors that it does not know.
            return WrongTLS(*cause.args)
        if isinstance(cause, ConnectionRefusedError):
            return None
    if not _has_tls(connection):
        cut_off = isinstance(error, (ConnectionError, InvalidResponse)) and connection._has_connected
        return WrongTLS(_NEEDS_TLS) if cut_off and _has_answer(connection, _shake_hands) else None
    for cause in causes:
        if text := _text(cause):
            return WrongTLS(text)
    return WrongTLS(_NO_TLS) if _has_answer(connection, _ping) else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__


def _text(cause: BaseException) -> str:
    """Return what one error of Python's ssl says, with a remedy; empty if a further attempt may help."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        remedy = _REMEDIES.get(cause.verify_code, _AUTHORITY)
        return f"the certificate of the server is refused ({cause.verify_message}): {remedy}"
    if isinstance(cause, _UNREADABLE):
        return f"{_FILES}{cause.strerror}"
    if not isinstance(cause, ssl.SSLError):
        return ""
    reason = cause.reason or ""
    if cause.library == "X509" or "PEM lib" in str(cause):
        return f"{_FILES}{cause}"
    if any(alert in reason for alert in _CLIENT_ALERTS):
        return f"{_CLIENT} ({reason})"
    return _NO_TLS if reason == "WRONG_VERSION_NUMBER" else ""


def _has_answer(connection: Any, ask: Callable[[socket.socket], bool]) -> bool:
    place = getattr(connection, "host", ""), getattr(connection, "port", 0)
    with suppress(OSError), socket.create_connection(place, _SOON) as asked:
        return ask(asked)
    return False


def _ping(asked: socket.socket) -> bool:
    asked.sendall(b"PING\r\n")
    # PONG, or an error that asks for a password or refuses strangers.
    return asked.recv(1) in (b"+", b"-")


def _shake_hands(asked: socket.socket) -> bool:
    # Nothing is sent here but the handshake, so nothing has to be trusted.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(asked):
        return True
