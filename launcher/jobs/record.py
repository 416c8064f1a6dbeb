"""Record of a job in its Redis: what the commands did with the job last, for `list` and `status` on every machine."""

from __future__ import annotations

import socket
from dataclasses import dataclass


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
