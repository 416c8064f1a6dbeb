"""Events of a job, and who caused them: the Redis stream `<jobName>:events`, of which old entries are dropped."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from cluster_serving.protocol.keys import JobKeys, as_text

MOST = 1000
"""Number of events that are kept, and some more, as Redis drops whole blocks of a stream."""


@dataclass(frozen=True)
class Event:
    """Something that has happened to a job.

    Attributes:
        time: Time by the clock of Redis, in seconds since the epoch.
        what: The event, in words.
        by: The command, controller or slot that has caused it.
    """

    time: float
    what: str
    by: str

    @classmethod
    def of(cls, entry_id: bytes | str, fields: Mapping[Any, Any]) -> Event:
        """Read an entry of the stream."""
        texts = {as_text(name): as_text(value) for name, value in fields.items()}
        return cls(int(as_text(entry_id).partition("-")[0]) / 1000, texts.get("what", ""), texts.get("by", ""))


def record(client: Any, job: str, what: str, by: str) -> None:
    """Add an event; one that Redis does not take, at its memory limit say, is dropped."""
    with suppress(RedisError, OSError):
        client.xadd(JobKeys(job).events, {"what": what, "by": by}, maxlen=MOST)
