"""The channels on which results are announced, and the messages on them.

The job publishes the uris of answered requests. The channel is the one that a request names in `reply_to`, else the one
named like the result key. If the request asks for it, the message holds the result itself. Results are also in hashes,
so a lost message costs time and never a result.
"""

from __future__ import annotations

import os
import uuid

import hiredis

from cluster_serving.protocol.results import Fields

RECHECK = 5.0
"""Seconds without a message after which a client looks for the result."""

RECONNECT_PAUSE = 0.1
"""Seconds between attempts to connect."""

SUBSCRIBE_TIMEOUT = 5.0
"""Seconds in which Redis confirms a subscription."""

CONFIRM_TIMEOUT = 1.0
"""Seconds in which a connection that was silent gives a sign of life."""

_PROCESS = uuid.uuid4().hex[:16]


def new_channel(job: str) -> str:
    """Return the name of a reply channel that no other client has; those of a process have the same start.

    `protocol.entry.Entry.client` reads the start.
    """
    return f"cluster-serving_{job}|reply|{_PROCESS}{os.getpid():x}.{uuid.uuid4().hex}"


def uris_in(message: object) -> list[bytes]:
    """Return the uris that a message may announce: each of its lines, and the whole, since a uri may hold newlines."""
    if not isinstance(message, bytes):
        return []
    lines = message.split(b"\n")
    return lines if len(lines) == 1 else [*lines, message]


def replies_in(message: object) -> dict[bytes, Fields]:
    """Return the uris in a message, with the fields of their results.

    The answers of one batch are RESP arrays in a row: the uri, then names and values in turn. An array without fields
    stands for a result that is too large for a message. Cancelled requests and requests that an older job has answered
    are announced in lines.
    """
    if not isinstance(message, bytes) or not message.startswith(b"*"):
        return {uri: {} for uri in uris_in(message)}
    reader = hiredis.Reader()
    reader.feed(message)
    replies: dict[bytes, Fields] = {}
    try:
        while (answer := reader.gets()) is not False:
            uri, *fields = answer
            if len(fields) % 2:
                raise ValueError("a name without a value")
            replies[uri] = dict(zip(fields[::2], fields[1::2]))
    except (ValueError, TypeError, hiredis.HiredisError):
        replies = {}
    # The message is no array but a uri that begins like one.
    return replies or {uri: {} for uri in uris_in(message)}
