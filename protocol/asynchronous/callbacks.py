"""Callbacks: results that front ends post to addresses of clients, kept in Redis until they are accepted.

A front end claims those that are due. So a callback survives the front end that has it, and may be posted twice, but
has the same id then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from cluster_serving.protocol.asynchronous.leases import LeaseQueue
from cluster_serving.protocol.dead_letters import MAX_PAYLOAD_BYTES, DeadLetter
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.json_record import JsonRecord
from cluster_serving.protocol.keys import JobKeys

SERDE = b"callback"
"""Value of the field `serde` of dead letters that are callbacks; their payload is the content."""

CALLBACK_FAILED = "CALLBACK_FAILED"
"""Code of such a letter. A client may have sent a request of that `serde`, but no client chooses the code."""


@dataclass(frozen=True)
class Callback(JsonRecord):
    """A result that is to be posted.

    Attributes:
        id: Id of the request.
        url: Address of the receiver.
        model: Name of the model, as the client knows it.
        attempts: Number of attempts that have failed.
        body: Body of the message, once an attempt has failed; empty if it is made of the results.
    """

    id: str
    url: str
    model: str
    attempts: int = 0
    body: str = ""

    def content(self) -> bytes:
        """Return the callback as bytes, for `from_json`."""
        return self.to_json().encode()

    def failed(self, body: bytes) -> Callback:
        """Return the callback after a further attempt. It keeps the body, which outlives the results, unless large."""
        failed = replace(self, attempts=self.attempts + 1, body="")
        if len(body) > MAX_PAYLOAD_BYTES:
            return failed
        kept = replace(failed, body=body.decode())
        return kept if len(kept.content()) <= MAX_PAYLOAD_BYTES else failed

    def letter(self, problem: str) -> DeadLetter:
        """Return the dead letter of a callback that is given up now."""
        entry = Entry(b"", self.id, self.content(), SERDE, reply_to=self.url)
        return DeadLetter(entry, len(entry.data), CALLBACK_FAILED, problem, time.time())


def queue_of(job: str) -> LeaseQueue:
    """Return the queue of the callbacks of a job; the name of an item is the id of the request."""
    keys = JobKeys(job)
    return LeaseQueue(keys.callback_times, keys.callbacks, keys.dead_letters)
