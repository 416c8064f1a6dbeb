"""Cancellation of requests that wait in the stream."""

from __future__ import annotations

from collections.abc import Mapping

from cluster_serving.client.positions import Position, search
from cluster_serving.protocol.encodings import is_early_job
from cluster_serving.protocol.errors import RequestCancelled
from cluster_serving.protocol.keys import GROUP, JobKeys, image_result_key, to_bytes
from cluster_serving.protocol.payloads import base as payload_folders
from cluster_serving.protocol.results import encode_error
from cluster_serving.protocol.scripts import HAS_ENTRY, WITHDRAW, Call, Procedure, flat

DEFAULT_RESULT_TTL = 3600
"""Seconds for which the result of a cancelled request is kept, unless the job has published its `resultTtl`."""


def cancel(job: str, uri: str, position: Position | None) -> Procedure[bool]:
    """Withdraw a request and answer it with `RequestCancelled`.

    Without its position, and if it is no longer there (a dead letter may have been put back), the streams are searched
    for all requests of that uri, newest first, in pages.

    Returns:
        True if a request was withdrawn; False if it is being computed, is answered, or never existed.
    """
    answer = encode_error(RequestCancelled(f"the request {uri!r} was cancelled before it was computed"))
    if position is not None:
        if discard_file((yield withdraw_call(job, uri, position, answer))):
            return True
        if (yield Call(HAS_ENTRY, [position.stream], [position.entry_id])):
            return False
    withdrawn = False
    for found in (yield from search(job, uri)):
        withdrawn = discard_file((yield withdraw_call(job, uri, found, answer))) or withdrawn
    return withdrawn


def discard_file(reply: object) -> bool:
    """Remove the payload file that a reply to `withdraw_call` may name; return True if the request was withdrawn."""
    if isinstance(reply, list):
        payload_folders.discard(*reply)
    return bool(reply)


def withdraw_call(job: str, uri: str, position: Position, answer: Mapping[str, str | bytes] | None = None) -> Call:
    """Return the call that removes a request from the stream, unless it is being computed.

    `answer` has the fields of the request's result hash; None if no client waits for it any more.
    """
    names = JobKeys(job)
    keys = [position.stream, names.limits, names.native_result(uri), names.result(uri), names.pieces(uri)]
    if is_early_job(job):
        keys.append(image_result_key(uri))
    return Call(WITHDRAW, keys, [GROUP, position.entry_id, to_bytes(uri), DEFAULT_RESULT_TTL, *flat(answer or {})])
