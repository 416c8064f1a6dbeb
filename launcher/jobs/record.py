"""Record of a job in its Redis: what the commands did with the job last, for `list` and `status` on every machine."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import redis

from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.scripts import PUT_FIELDS, Call, call, flat


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What is known of a job that Flink may not have.

    Attributes:
        state: `starting`, `running`, `stopped` or `failed`; empty if no command has recorded it.
        since: Time of the last change of the state in seconds since the epoch; 0 if unknown.
        error: The last error; empty after a start that succeeded.
        log: File with the output of the last start, and the trace of its error.
        host: Machine of that file.
        layout: Copies, threads and batches of the job in words; empty if it runs on other machines.
    """

    state: str = ""
    since: float = 0.0
    error: str = ""
    log: str = ""
    host: str = ""
    layout: str = ""

    @property
    def place(self) -> str:
        """The log, with its machine if that is another one."""
        return self.log if self.host in ("", socket.gethostname()) else f"{self.log} on {self.host}"


def read(client: redis.Redis, job: str) -> JobRecord:
    """Return the record of a job. The client has replies as text."""
    # redis-py declares one type for its blocking and its asyncio client.
    fields = cast("dict[str, str]", client.hgetall(JobKeys(job).record))
    since = float(fields.pop("since", 0))
    return JobRecord(
        since=since, **{name: fields.get(name, "") for name in ("state", "error", "log", "host", "layout")}
    )


def note(
    client: redis.Redis,
    job: str,
    state: str,
    error: str | None = None,
    log: Path | None = None,
    layout: str | None = None,
) -> None:
    """Record a change of a job's state. Without `error`, `log` or `layout`, those of before stay."""
    fields = {"state": state, "since": str(time.time())}
    if error is not None:
        fields["error"] = error
    if log is not None:
        fields |= {"log": str(log), "host": socket.gethostname()}
    if layout is not None:
        fields["layout"] = layout
    call(client, Call(PUT_FIELDS, [JobKeys(job).record], ["some", *flat(fields)]))


def note_error(client: redis.Redis, job: str, error: str) -> None:
    """Record an error that leaves a job as it is, or with an empty text that there is none any more."""
    call(client, Call(PUT_FIELDS, [JobKeys(job).record], ["some", "error", error]))
