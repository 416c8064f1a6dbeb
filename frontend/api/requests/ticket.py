"""The id of a request that is asked for later."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cluster_serving.frontend.errors import RequestNotFound
from cluster_serving.protocol.keys import ticket_key

_ID = re.compile(r"([0-9a-f]{32})-([1-9][0-9]{0,5})-([A-Za-z0-9_.-]+|\{[A-Za-z0-9_.-]+\})")


@dataclass(frozen=True, slots=True)
class Ticket:
    """What an id says.

    Attributes:
        secret: Random part, which nobody can guess.
        count: Number of instances.
        job: Name of the job.
    """

    secret: str
    count: int
    job: str

    def __str__(self) -> str:
        return f"{self.secret}-{self.count}-{self.job}"

    @property
    def uris(self) -> list[str]:
        """Of its requests to the job."""
        return [f"{self.secret}-{index}" for index in range(self.count)]

    @property
    def key(self) -> str:
        """Redis hash that exists while the id is known: the priority, and stream entries by uri."""
        return ticket_key(self.job, self.secret)

    @classmethod
    def read(cls, text: str, most: int) -> Ticket:
        """Read an id.

        Raises:
            RequestNotFound: It is none.
        """
        match = _ID.fullmatch(text)
        if match is None or int(match[2]) > most:
            raise RequestNotFound("there is no such request")
        return cls(match[1], int(match[2]), match[3])
