"""Requests and callbacks that were given up, queued again."""

from __future__ import annotations

from dataclasses import replace

from cluster_serving.protocol.asynchronous.callbacks import CALLBACK_FAILED, SERDE, Callback, queue_of
from cluster_serving.protocol.dead_letters import MAX_PAYLOAD_BYTES, DeadLetter
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import result_key_of
from cluster_serving.protocol.scripts import REQUEUE, Call, flat


def requeue_call(job: str, letter_id: str, letter: DeadLetter) -> Call:
    """Return the call that puts a request back on its stream, and removes the letter and the error that answered it.

    Read its reply with `queued`. That of a callback puts it back into its queue, and the letter is still to be removed.

    Raises:
        InvalidInput: If the payload was not kept, or is no callback where it has to be one.
    """
    if not letter.kept:
        raise InvalidInput(
            f"dead letter {letter_id} ({letter.request.uri!r}) cannot be queued again: its payload of {letter.size} "
            f"bytes was not kept, as it has more than {MAX_PAYLOAD_BYTES}; send it again"
        )
    if (letter.code, letter.request.serde) == (CALLBACK_FAILED, SERDE):
        try:
            callback = replace(Callback.from_json(letter.request.data), attempts=0)
        except (TypeError, ValueError):
            raise InvalidInput(f"dead letter {letter_id} ({letter.request.uri!r}) has no callback") from None
        return queue_of(job).put(callback.id, callback.content(), 0, new=True)
    keys, request = JobKeys(job), letter.request
    written: list[str | bytes] = [result_key_of(job, request), keys.pieces(request.uri)]
    others = [keys.dead_letters, keys.stream(request.priority), *written, keys.limits]
    return Call(REQUEUE, others, [letter_id, *flat(letter.request_fields())])


def queued(letter_id: str, reply: bytes | int | list[bytes] | None) -> bytes | int | None:
    """Return the new id of a request in its stream; None if its letter was removed in the meantime; 1 for a callback.

    Raises:
        InvalidInput: If the job serves the model no more: nothing would answer, and the letter stays.
    """
    if isinstance(reply, list):
        reason = reply[0].decode("utf8", "replace")
        raise InvalidInput(f"dead letter {letter_id} stays, as nothing would answer its request: {reason}")
    return reply
