"""What the parts of a source share: the slot that reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot import failures
from cluster_serving.connectors.slot.answer import Answer, write_answers
from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.connectors.slot.generation import GenerationView
from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.metrics import FAILED
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.payloads.base import PayloadFolder
from cluster_serving.protocol.results import encode_error


@dataclass(frozen=True)
class Slot:
    """A slot that reads requests.

    Attributes:
        client: Connection to the job's Redis.
        options: Redis and streams that the slot reads: those of clients, or the queue of a shadow.
        index: Index of the slot, from 0.
        reader: Reader of the streams.
        generation: Generations of the job.
        flow: Requests between this source and the sink.
        read_size: Most entries of one read.
        greedy: See `ReadingOptions`.
        metrics: Metrics of the source.
        counts: Counts of the slot.
    """

    client: Any
    options: RedisOptions
    index: int
    reader: StreamReader
    generation: GenerationView
    flow: SlotFlowControl
    read_size: int
    greedy: bool
    metrics: Metrics
    counts: Counts

    @cached_property
    def keys(self) -> JobKeys:
        """Keys of what the slot reads."""
        return JobKeys(self.options.job)

    @cached_property
    def folder(self) -> PayloadFolder | None:
        """Folder of inputs that clients left in files; None if the job has none."""
        return PayloadFolder(self.options.payload_folder) if self.options.payload_folder else None

    def located(self, entry: Entry) -> Entry:
        """Return a request with the path of its file.

        Raises:
            InvalidInput: If the request names a path outside of the folder, or there is no folder.
        """
        if self.folder is None:
            raise InvalidInput("field 'data_file' names a file, but this job has no folder for files (payloadFolder)")
        return entry._replace(path=self.folder.locate(entry.file))

    def refuse(self, refused: Sequence[tuple[Entry, ServingError]]) -> None:
        """Answer requests with errors; their files are removed."""
        if refused:
            answers = [Answer(self._with_file(entry), encode_error(error)) for entry, error in refused]
            write_answers(self.client, self.options.job, self.options.result_ttl_s, answers, self.options.version)
            for entry, error in refused:
                self.counts.add(FAILED, entry.record_count, error.code)
                failures.note(entry, error.code, self.options, self.index)

    def _with_file(self, entry: Entry) -> Entry:
        if entry.file and not entry.path:
            with suppress(InvalidInput):
                return self.located(entry)
        return entry
