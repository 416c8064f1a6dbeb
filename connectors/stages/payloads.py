"""Inputs that clients left in files (`protocol.payloads.files`): reading them, and removing files without a request."""

import logging
import os
import stat
import time
from collections.abc import Iterator

from cluster_serving.connectors.slot.base import Slot
from cluster_serving.connectors.slot.stage import Stage
from cluster_serving.connectors.slot.stream import drop
from cluster_serving.protocol import columns
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.payloads.base import remove
from cluster_serving.protocol.payloads.files import read, too_large
from cluster_serving.protocol.payloads.names import is_payload
from cluster_serving.protocol.results import result_key_of
from cluster_serving.protocol.scripts import NEWEST, call, page_call

SWEEP_AGE = 3600.0
"""Seconds that a file without a request is kept; its client may still wait for room in the queue."""

log = logging.getLogger(__name__)


class Payloads(Stage):
    """Loads the inputs of requests.

    The first slot of a job also removes files without a request now and then.
    """

    def __init__(self, slot: Slot) -> None:
        super().__init__(slot)
        self._sweeps = slot.index == 0 and slot.folder is not None
        self._next_sweep = 0.0

    def admit(self, entries: list[Entry]) -> list[Entry]:
        """Return the requests with their inputs, without those that are answered with an error."""
        return [loaded for entry in entries if (loaded := self.readmit(entry))]

    def readmit(self, entry: Entry) -> Entry | None:
        """Return a request with its inputs, which may be in a file; None if the request is answered.

        Inputs that cannot be read or are too large are answered with an error here, and never reach Flink's memory.
        """
        slot = self.slot
        limit = max(slot.options.max_request_bytes, columns.MOST_ENCODED if entry.records else 0)
        try:
            if entry.file:
                entry = slot.located(entry)
                entry = entry._replace(data=read(entry.path, limit))
            if entry.size > limit:
                raise too_large(entry.size, limit)
        except FileNotFoundError:
            if slot.client.exists(result_key_of(slot.options.job, entry)):
                # The client lost its connection and queued the request twice; the first answer removed the file.
                log.warning("request %r was queued twice and is already answered", entry.uri)
                drop(slot.client, slot.keys.stream(entry.priority), entry.id)
            else:
                slot.refuse([(entry, InvalidInput("the file that field 'data_file' names does not exist (any more)"))])
        except ServingError as error:
            slot.refuse([(entry, error)])
        except OSError as error:
            # Without an answer, the request would be delivered again and again.
            slot.refuse([(entry, InvalidInput(f"the file that field 'data_file' names cannot be read: {error}"))])
        else:
            return entry
        return None

    def begin(self) -> None:
        """Remove old files without a request, once per `SWEEP_AGE`."""
        if not self._sweeps or time.monotonic() < self._next_sweep:
            return
        old = set(self._old_files())
        if old:
            # List the files before the requests: a request that is queued in between has a young file.
            for stream in self.slot.keys.streams:
                old.difference_update(self._referred(stream))
            for name in old:
                remove(os.path.join(self.slot.options.payload_folder, name))
            log.info("job %s: removed %d payload files without a request", self.slot.options.job, len(old))
        self._next_sweep = time.monotonic() + SWEEP_AGE

    def _old_files(self) -> Iterator[str]:
        before = time.time() - SWEEP_AGE
        try:
            with os.scandir(self.slot.options.payload_folder) as files:
                for file in files:
                    try:
                        status = file.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        # Its request was answered just now.
                        continue
                    if is_payload(file.name) and stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                        yield file.name
        except OSError as error:
            log.warning("job %s: the folder of payload files cannot be read: %s", self.slot.options.job, error)

    def _referred(self, stream: str) -> Iterator[str]:
        last = NEWEST
        while last:
            last, entries = call(self.slot.client, page_call(stream, last, "data_file"))
            yield from (name.decode("ascii", "replace") for _, name in entries)
