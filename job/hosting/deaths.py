"""Deaths of processes by a model: the notes on attempts name the request that a dead process has computed alone."""

from __future__ import annotations

from typing import Any

from cluster_serving.connectors.slot.attempts import Attempt
from cluster_serving.connectors.slot.ends import STOPPED, read_end
from cluster_serving.connectors.slot.redis import write_hash
from cluster_serving.protocol.hosting.orders import DEATHS
from cluster_serving.protocol.keys import GROUP, JobKeys, as_text

_MOST_REQUESTS = 2
"""Requests on which a process has died, from which on the model is the cause, and not one of its requests."""


def found(client: Any, model: str) -> set[str]:
    """Return the requests of a model on which processes have died.

    A request is noted when it is computed alone, which is the case after its first death.
    """
    keys = JobKeys(model)
    known = as_text(client.hget(keys.record, DEATHS) or b"")
    deadly = {*filter(None, known.split(","))}
    now = deadly | {
        as_text(field)
        for field, note in client.hgetall(keys.attempts).items()
        if _has_died(Attempt.from_json(note)) and _is_pending(client, keys, as_text(field))
    }
    if now != deadly:
        write_hash(client, keys.record, {DEATHS: ",".join(sorted(now))})
    return now


def cause(deadly: set[str]) -> str:
    """Return why a model is put aside on whose requests processes have died; empty if it is not."""
    if len(deadly) < _MOST_REQUESTS:
        return ""
    return f"it is put aside: the process has died again and again on {len(deadly)} of its requests"


def _has_died(attempt: Attempt) -> bool:
    ended = attempt.process and not attempt.traceback and not attempt.runs
    # Of a process that Flink has ended, the request is not the cause.
    return bool(ended) and read_end(attempt.end) != STOPPED


def _is_pending(client: Any, keys: JobKeys, field: str) -> bool:
    """Return True if the request of a note has no answer; after an answer, a later one may have ended the process."""
    priority, _, entry_id = field.partition(":")
    stream = keys.stream(priority)
    return bool(client.exists(stream) and client.xpending_range(stream, GROUP, entry_id, entry_id, 1))
