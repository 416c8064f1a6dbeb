"""Whole bodies and whole responses, read from and written to uvicorn at once where ASGI takes several steps."""

from collections.abc import Callable, Iterable

from starlette.types import Receive, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

_JOINED = 1 << 16
"""Bytes of a body that is copied behind its headers, which costs less than to write it by itself."""


def whole_body(receive: Receive) -> bytes | None:
    """Return the body of a request, once it has arrived as a whole, as a small one has with its headers; else None.

    To ask for it in the way of ASGI takes a timer and several coroutines. A middleware between may have replaced
    `receive`, and None is returned then.
    """
    cycle = getattr(receive, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle) or cycle.more_body or cycle.disconnected:
        return None
    body, cycle.body = bytes(cycle.body), bytearray()
    cycle.flow.resume_reading()
    cycle.message_event.clear()
    return body


def on_disconnect(receive: Receive, call: Callable[[], object] | None) -> None:
    """Have a function called when the client of a request closes the connection; None for no function any more.

    ASGI tells that only to a task that waits for it.
    """
    cycle = getattr(receive, "__self__", None)
    if isinstance(cycle, RequestResponseCycle):
        if call is not None and cycle.disconnected:
            call()
        cycle.on_disconnect = call  # type: ignore[attr-defined]


def disconnected(cycle: RequestResponseCycle | None) -> None:
    """Call the function of `on_disconnect`, if the request of a closed connection has one."""
    if (call := getattr(cycle, "on_disconnect", None)) is not None:
        call()


def write(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
    """Write a whole response at once, as ASGI cannot; return False if it has to be sent in the way of ASGI.

    A middleware between may have replaced `send`, and a client may not have read an earlier response.
    """
    cycle = getattr(send, "__self__", None)
    if type(cycle) is not RequestResponseCycle or cycle.response_started or cycle.flow.write_paused:
        return False
    fields = [*cycle.default_headers, *headers]
    parts = [STATUS_LINE[status]]
    for name, value in fields:
        if name == b"connection":
            return False
        parts += (name, b": ", value, b"\r\n")
    head = b"".join(parts)
    if head.count(b"\r") != len(fields) + 1 or head.count(b"\n") != len(fields) + 1:
        # A value that would begin another header.
        return False
    if cycle.disconnected:
        return True
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    head += b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
    if len(body) < _JOINED:
        cycle.transport.write(head + body)
    else:
        cycle.transport.write(head)
        cycle.transport.write(body)
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True
