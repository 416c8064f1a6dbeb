"""Dead letters of the jobs, as the page `/ui` shows them and queues them again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.protocol import events
from cluster_serving.protocol.asynchronous.requeue import queued, requeue_call
from cluster_serving.protocol.dead_letters import DeadLetter
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.scripts import DEAD_LETTERS, Call, call_async, fields_of

_MOST = 50
_OF_TICKET = re.compile(r"[0-9a-f]{32}-")
_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


def newest_call(job: str) -> Call:
    """Return the call that reads the latest dead letters; `described` takes each of them."""
    return Call(DEAD_LETTERS, [JobKeys(job).dead_letters], [_MOST])


def described(letter_id: bytes, fields: Sequence[bytes]) -> dict[str, Any]:
    """Return a letter, ready for JSON."""
    named = fields_of(fields)
    letter = DeadLetter.parse(named)
    return {
        "id": letter_id.decode(),
        "time": round(1000 * letter.time),
        "uri": _shown(letter.request.uri),
        "code": letter.code,
        "error": letter.error.encode("utf8", "backslashreplace").decode(),
        "traceback": letter.traceback,
        "bytes": letter.size,
        "kept": int(named.get(b"data", b"0")) == letter.size,
    }


async def requeue(dispatch: Dispatch, job: str, letter_ids: Sequence[str], by: str) -> dict[str, str]:
    """Queue requests again, and note that as an event; return why not, by the id of each letter that is left.

    Raises:
        RedisUnavailable: If Redis cannot be reached.
    """
    refused = {}
    for letter_id in letter_ids:
        try:
            await _requeue(dispatch, job, letter_id, by)
        except InvalidInput as error:
            refused[letter_id] = error.message
    return refused


async def _requeue(dispatch: Dispatch, job: str, letter_id: str, by: str) -> None:
    gone = InvalidInput(f"job {job} has no dead letter {letter_id[:64]}")
    if not _ID.fullmatch(letter_id):
        raise gone
    dispatcher = dispatch.dispatcher(job)
    db: Any = dispatcher.db
    with dispatcher.using_redis():
        entries = await db.xrange(JobKeys(job).dead_letters, letter_id, letter_id)
        letter = DeadLetter.parse(entries[0][1]) if entries else None
        if letter is None:
            raise gone
        entry = queued(letter_id, await call_async(db, requeue_call(job, letter_id, letter)))
        if entry is None:
            raise gone
        if isinstance(entry, int):
            await db.xdel(JobKeys(job).dead_letters, letter_id)
    what = f"dead letter {letter_id} ({_shown(letter.request.uri)!r}) queued again"
    await dispatch.ask([job], lambda pipeline, _: events.record(pipeline, job, what, by))


def _shown(uri: str) -> str:
    """Return the name of a request; only its beginning if it came by `/v1/requests`, where the name gets the result."""
    return f"{uri[:8]}…" if _OF_TICKET.match(uri) else uri.encode("utf8", "backslashreplace").decode()
