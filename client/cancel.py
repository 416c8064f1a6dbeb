"""Withdrawing a request that waits."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from cluster_serving.protocol import payload_files
from cluster_serving.protocol.errors import RequestCancelled
from cluster_serving.protocol.keys import GROUP, limits_key, result_key, streams_of
from cluster_serving.protocol.original import image_stream
from cluster_serving.protocol.results import encode_error
from cluster_serving.protocol.scripts import Call, Procedure, Script, flat
from cluster_serving.protocol.searching import NEWEST, page

DEFAULT_RESULT_TTL = 3600
"""Seconds that the answer to a withdrawn request is kept if no job has said how long."""

_MOST_REMEMBERED = 10_000

# An entry is being computed if it is pending in the group; without a group, no job has ever read.
_CANCEL = Script("""
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)
if not pending.err and #pending > 0 then return 0 end
local found = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])
if #found == 0 then return 0 end
local entry = {}
for i = 1, #found[1][2], 2 do entry[found[1][2][i]] = found[1][2][i + 1] end
if entry.uri ~= ARGV[3] then return 0 end
redis.call('XDEL', KEYS[1], ARGV[2])
if #ARGV > 4 then
  -- The clients of 0.7 and 0.8 look for their result elsewhere.
  local key = entry.image and not entry.data and KEYS[4] or KEYS[2]
  redis.call('DEL', key)
  redis.call('HSET', key, unpack(ARGV, 5))
  redis.call('EXPIRE', key, redis.call('HGET', KEYS[3], 'resultTtl') or ARGV[4])
  local channel = entry.reply_to
  if not channel or channel == '' then channel = key end
  redis.call('PUBLISH', channel, ARGV[3])
end
if entry.data_file then return {redis.call('HGET', KEYS[3], 'payloadFolder') or '', entry.data_file} end
return 1
""")


class Place(NamedTuple):
    """Where a request is."""

    stream: str
    entry_id: bytes


class RecentEntries:
    """Where the latest requests of a queue were put, so that they need not be searched; safe for threads."""

    def __init__(self, limit: int = _MOST_REMEMBERED) -> None:
        self._limit = limit
        self._entries: dict[str, Place] = {}
        self._lock = threading.Lock()

    def remember(self, uri: str, place: Place) -> None:
        """Note where a request is; the oldest note is forgotten."""
        with self._lock:
            self._entries.pop(uri, None)
            self._entries[uri] = place
            if len(self._entries) > self._limit:
                del self._entries[next(iter(self._entries))]

    def find(self, uri: str) -> Place | None:
        """Place of the latest request of that uri, if it is remembered."""
        with self._lock:
            return self._entries.get(uri)


def cancelling(job: str, uri: str, place: Place | None) -> Procedure[bool]:
    """Withdraw a request and answer it with `RequestCancelled`.

    Args:
        job: `jobName`.
        uri: The request.
        place: Where it is; None to search the streams for all requests of that uri, newest first, in pages.

    Returns:
        Whether one was withdrawn. False: it is being computed, is answered, or never was.
    """
    answer = encode_error(RequestCancelled(f"the request {uri!r} was cancelled before it was computed"))
    if place is not None:
        return clear_withdrawn((yield withdrawal(job, uri, place, answer)))
    done = False
    for stream in streams_of(job):
        last = NEWEST
        while last:
            last, found = yield page(stream, last, "uri", _bytes(uri))
            for entry_id, _ in found:
                done = clear_withdrawn((yield withdrawal(job, uri, Place(stream, entry_id), answer))) or done
    return done


def clear_withdrawn(reply: object) -> bool:
    """Remove the file of a request, if it had one, once it is withdrawn.

    Args:
        reply: To `withdrawal`.

    Returns:
        Whether it was withdrawn.
    """
    if isinstance(reply, list):
        payload_files.discard(*reply)
    return bool(reply)


def withdrawal(job: str, uri: str, place: Place, answer: Mapping[str, str | bytes] = MappingProxyType({})) -> Call:
    """The call that takes a request out of the stream, unless it is being computed.

    Args:
        job: `jobName`.
        uri: The request.
        place: Where it is.
        answer: Fields of a result hash for it; none if nobody waits for it any more.
    """
    keys = [place.stream, result_key(job, uri), limits_key(job)]
    if job == image_stream.STREAM:
        keys.append(image_stream.result_key(uri))
    return Call(_CANCEL, keys, [GROUP, place.entry_id, _bytes(uri), DEFAULT_RESULT_TTL, *flat(answer)])


def _bytes(uri: str) -> bytes:
    return uri.encode("utf8", "surrogateescape")
