"""Bodies of HTTP requests."""

import asyncio

from starlette.requests import ClientDisconnect

from cluster_serving.frontend.errors import BodyTimeout
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server.http import cycle
from cluster_serving.frontend.server.http.call import HttpCall
from cluster_serving.frontend.server.http.compression import decompressed
from cluster_serving.protocol.compat import timeout
from cluster_serving.protocol.errors import RequestTooLarge


async def read_body(call: HttpCall, options: HttpOptions, most: int | None = None) -> bytes:
    """Read the body of a request, and undo its Content-Encoding.

    Raises:
        RequestTooLarge: If the body is larger than `maxBodyBytes`, or than `most` bytes, before or after that.
        UnsupportedEncoding: If the Content-Encoding of the body is not known.
        InvalidInput: If the body does not have its Content-Encoding.
        Overloaded: If all bodies together are larger than `maxBodyMemory`.
        BodyTimeout: If the body does not arrive in time.
        ClientDisconnect: If the client closes the connection.
    """
    limit = options.max_body_bytes if most is None else min(most, options.max_body_bytes)
    body = await _received(call, options, limit)
    encoding = (call.header(b"content-encoding") or "").lower()
    if encoding not in ("", "identity"):
        # A small body may become a large one.
        memory = call.body
        parts, steps = [], decompressed(body, encoding, limit)
        while (step := await asyncio.to_thread(next, steps, None)) is not None:
            read, part = step
            memory.give(read)
            memory.take(len(part))
            parts.append(part)
        body = b"".join(parts)
    return body


async def _received(call: HttpCall, options: HttpOptions, limit: int) -> bytes:
    message = f"the body is larger than {limit} bytes{' (maxBodyBytes)' if limit == options.max_body_bytes else ''}"
    declared = call.header(b"content-length") or ""
    if declared.isdecimal() and int(declared) > limit:
        raise RequestTooLarge(message)
    memory = call.body
    whole = cycle.whole_body(call.receive)
    if whole is not None:
        if len(whole) > limit:
            raise RequestTooLarge(message)
        memory.take(len(whole))
        return whole
    chunks: list[bytes] = []
    size = 0
    try:
        async with timeout(options.body_timeout):
            while True:
                part = await call.receive()
                if part["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk: bytes = part.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise RequestTooLarge(message)
                memory.take(len(chunk))
                chunks.append(chunk)
                if not part.get("more_body", False):
                    return chunk if len(chunks) == 1 else b"".join(chunks)
    except asyncio.TimeoutError:
        raise BodyTimeout(f"the body did not arrive within {options.body_timeout:g} s (bodyTimeout)") from None
