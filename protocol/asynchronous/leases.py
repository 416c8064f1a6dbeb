"""Queues of work that a process takes for a while: what it has not ended then, another one takes over.

A hash has the contents of a queue, and a sorted set the times at which processes look at them next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cluster_serving.protocol.dead_letters import MAX_DEAD_LETTERS, DeadLetter
from cluster_serving.protocol.scripts import CLAIM_LEASES, END_LEASE, PUT_LEASES, Call, flat

LEASE = 10.0
"""Seconds after which another process takes over what one has claimed and not renewed."""


class LeaseQueue(NamedTuple):
    """A queue, by its keys in Redis.

    Attributes:
        times: Sorted set of the times, in milliseconds since the epoch.
        contents: Hash of the contents.
        dead_letters: Stream of what is given up; empty for none.
    """

    times: str
    contents: str
    dead_letters: str = ""

    def put(self, item: str, content: bytes, seconds: float, new: bool = False) -> Call:
        """Return the call that sets content and time of an item; one that is not new must still be there."""
        return Call(PUT_LEASES, self[:2], [round(1000 * seconds), "new" if new else "", item, content])

    def renew(self, items: Iterable[str], seconds: float | None = None) -> Call:
        """Return the call that hides items for some seconds from now on; by default, for a lease."""
        seconds = LEASE if seconds is None else seconds
        pairs = [part for item in items for part in (item, "")]
        return Call(PUT_LEASES, self[:2], [round(1000 * seconds), "", *pairs])

    def claim(self, most: int) -> Call:
        """Return the call that claims items that are due; its reply is for `claimed`."""
        return Call(CLAIM_LEASES, self[:2], [round(1000 * LEASE), most])

    def end(self, item: str, letter: DeadLetter | None = None) -> Call:
        """Return the call that ends an item, with its dead letter if it is given up; it replies 1 if it was there."""
        keys = [*self[:2], self.dead_letters or self.times]
        return Call(END_LEASE, keys, [item, MAX_DEAD_LETTERS, *flat(letter.fields() if letter else {})])


def claimed(reply: Sequence[bytes]) -> list[tuple[str, bytes]]:
    """Return items and contents in a reply to `LeaseQueue.claim`."""
    return [(item.decode(), content) for item, content in zip(reply[::2], reply[1::2])]
