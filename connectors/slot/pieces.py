"""Pieces of answers, which are written to Redis as the model makes them (`protocol.pieces`)."""

from collections.abc import Mapping, Sequence

import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import Answer, write_answers
from cluster_serving.connectors.slot.redis import Backoff
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.keys import GROUP, JobKeys, to_bytes
from cluster_serving.protocol.results import VERSION
from cluster_serving.protocol.scripts import ADD_PIECES, Argument, Call, call, flat


class PieceWriter:
    """Writer of the pieces of one slot; while Redis is away it tries again, and the slot waits.

    Args:
        client: Connection to the job's Redis.
        options: Options of the queue; answers name its `version`.
    """

    def __init__(self, client: redis.Redis, options: RedisOptions) -> None:
        self._client = client
        self._options = options
        self._backoff = Backoff(f"pieces of {options.job}")

    def attempt(self, entries: Sequence[Entry]) -> "PieceAttempt":
        """Begin to answer requests; pieces of earlier attempts are void once this one has a piece."""
        return PieceAttempt(self, entries)

    def answer(self, answers: Sequence[Answer]) -> None:
        """Write answers before those of the rest of their batch, which the sink writes."""
        options = self._options
        self._backoff.persist(
            lambda: write_answers(self._client, options.job, options.result_ttl_s, answers, options.version)
        )

    def add(self, parts: Sequence[tuple[Entry, int, int, Mapping[str, str | bytes]]]) -> list[int]:
        """Append pieces, each with its request, attempt and number; return their attempts, see `ADD_PIECES`."""
        names = JobKeys(self._options.job)
        keys: list[str | bytes] = []
        arguments: list[Argument] = [GROUP, self._options.result_ttl_s]
        for entry, attempt, number, fields in parts:
            values = [*flat(fields), VERSION, self._options.version]
            keys += [to_bytes(names.pieces(entry.uri)), names.stream(entry.priority)]
            arguments += [entry.id, to_bytes(entry.uri), attempt, number, len(values), *values]
        attempts: list[int] = self._backoff.persist(lambda: call(self._client, Call(ADD_PIECES, keys, arguments)))
        return attempts


class PieceAttempt:
    """One attempt at the answers of a batch; see `PieceWriter.attempt`."""

    def __init__(self, writer: PieceWriter, entries: Sequence[Entry]) -> None:
        self._writer = writer
        self._entries = entries
        # Number of the attempt, which the first piece tells, and of the last piece; of each request.
        self._places = [(0, 0)] * len(entries)

    def add(self, pieces: Mapping[int, Mapping[str, str | bytes]]) -> list[int]:
        """Append pieces, given by the index of their request; return the indices of those that nobody waits for."""
        parts = []
        for index, fields in pieces.items():
            attempt, number = self._places[index]
            parts.append((self._entries[index], attempt, number + 1, fields))
        attempts = self._writer.add(parts)
        for index, attempt in zip(pieces, attempts, strict=True):
            self._places[index] = attempt, self._places[index][1] + 1
        return [index for index, attempt in zip(pieces, attempts, strict=True) if not attempt]
