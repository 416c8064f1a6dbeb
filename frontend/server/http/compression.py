"""Compression of HTTP bodies: `gzip` and `deflate`, which is zlib."""

import asyncio
import zlib
from collections.abc import Iterator, Mapping

from starlette.responses import Response

from cluster_serving.frontend.errors import UnsupportedEncoding
from cluster_serving.frontend.server.http.call import HttpCall
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge

_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}

CODINGS = ", ".join(_WINDOWS)
"""Codings of bodies, as the header Accept-Encoding has them."""

_READ = {*_WINDOWS, "x-gzip"}
"""RFC 9110 (8.4.1.3) has x-gzip for another name of gzip."""

_FASTEST = 1

_SMALL = 1024
"""Bytes below which a body is compressed only for clients that name one coding: others name several in any request."""

_IN_THREAD = 1 << 16

_PART = 1 << 20


def decompressed(body: bytes, encoding: str, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Undo the Content-Encoding of a body; yield how many further bytes of it were read, and a part of at most `_PART`.

    Raises:
        UnsupportedEncoding: If the encoding is another one than gzip or deflate.
        InvalidInput: If the body is not of it. Nothing may follow its end, not even a second gzip member.
        RequestTooLarge: If the result has more than `max_bytes`.
    """
    if encoding not in _READ:
        raise UnsupportedEncoding(f"the body has Content-Encoding {encoding[:32]!r}; expected one of {CODINGS}")
    # 32: gzip or zlib, recognized by the first bytes.
    stream = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    size = start = 0
    while start < len(body) and not stream.eof:
        # In slices, since what is left of one is copied for each part.
        rest = body[start : start + _PART]
        read = len(rest)
        start += read
        goes_on = True
        while goes_on:
            try:
                part = stream.decompress(rest, _PART)
            except zlib.error as error:
                raise InvalidInput(f"the body is not {encoding}: {error}") from None
            size += len(part)
            if size > max_bytes:
                raise RequestTooLarge(f"the body has more than {max_bytes} bytes when it is decompressed")
            yield read, part
            rest, read = stream.unconsumed_tail, 0
            goes_on = not stream.eof and bool(rest or len(part) == _PART)
    if not stream.eof:
        raise InvalidInput(f"the body is not {encoding}: it ends early")
    if more := len(stream.unused_data) + len(body) - start:
        raise InvalidInput(f"the body is not {encoding}: {more} bytes follow its end")


async def compressed(call: HttpCall, response: Response) -> Response:
    """Compress the body of a response if the request accepts that."""
    if b"accept-encoding" not in call.headers:
        return response
    accepted = call.choices(b"accept-encoding")
    coding, needed = _preferred(accepted)
    body = bytes(response.body)
    if not coding or (len(body) < _SMALL and len(accepted) > 1 and not needed):
        return response
    work = zlib.compressobj(_FASTEST, wbits=_WINDOWS[coding])
    parts = await asyncio.to_thread(work.compress, body) if len(body) >= _IN_THREAD else work.compress(body)
    response.body = parts + work.flush()
    response.headers.update(
        {"content-length": str(len(response.body)), "content-encoding": coding, "vary": "accept-encoding"}
    )
    return response


def _preferred(accepted: Mapping[str, float]) -> tuple[str, bool]:
    """Return the coding that a client prefers, empty for none, and if it refuses a body without one.

    `*` stands for all that it does not name; no coding is used that only `*` allows as much as none.
    """
    rest = accepted.get("*", 0.0)
    plain = accepted.get("identity", rest)
    weight, is_named, coding = max((accepted.get(each, rest), each in accepted, each) for each in _WINDOWS)
    if weight > plain or (is_named and weight == plain > 0):
        return coding, not plain and bool({"identity", "*"} & accepted.keys())
    return "", False
