"""Inputs that clients left in files (`protocol.payload_files`): reading them, and removing files without a request."""

import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress

import redis

from cluster_serving.connectors.answer import Answer, write_answers
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.stream import drop
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.payload_files import PayloadFolder, is_payload, read, remove, too_large
from cluster_serving.protocol.results import encode_error, result_key_of
from cluster_serving.protocol.scripts import NEWEST, call, page_call

SWEEP_AGE = 3600.0
"""Seconds that a file without a request is kept; its client may still wait for room in the queue."""

log = logging.getLogger(__name__)


class Payloads:
    """Inputs of one job's requests.

    An instance that `sweeps` removes files without a request now and then; one slot of a job is enough for that.
    """

    def __init__(self, client: redis.Redis, options: RedisOptions, sweeps: bool = False) -> None:
        self._client = client
        self._job = options.job
        self._keys = JobKeys(options.job)
        self._options = options
        self._folder = PayloadFolder(options.payload_folder) if options.payload_folder else None
        self._sweeps = sweeps and self._folder is not None
        self._next_sweep = 0.0

    def load(self, entry: Entry) -> Entry | None:
        """Return a request with its inputs, which may be in a file; None if the request is answered.

        Inputs that cannot be read or are too large are answered with an error here, and never reach Flink's memory.
        """
        limit = self._options.max_request_bytes
        try:
            if entry.file:
                entry = self._with_path(entry)
                entry = entry._replace(data=read(entry.path, limit))
            if entry.size > limit:
                raise too_large(entry.size, limit)
        except FileNotFoundError:
            if self._client.exists(result_key_of(self._job, entry)):
                # The client lost its connection and queued the request twice; the first answer removed the file.
                log.warning("request %r was queued twice and is already answered", entry.uri)
                drop(self._client, self._keys.stream(entry.priority), entry.id)
            else:
                self.refuse((entry, InvalidInput("the file that field 'data_file' names does not exist (any more)")))
        except ServingError as error:
            self.refuse((entry, error))
        except OSError as error:
            # Without an answer, the request would be delivered again and again.
            self.refuse((entry, InvalidInput(f"the file that field 'data_file' names cannot be read: {error}")))
        else:
            return entry
        return None

    def sweep_if_due(self) -> None:
        """Remove old files without a request, once per `SWEEP_AGE`."""
        if not self._sweeps or time.monotonic() < self._next_sweep:
            return
        old = set(self._old_files())
        if old:
            # List the files before the requests: a request that is queued in between has a young file.
            for stream in self._keys.streams:
                old.difference_update(self._referred(stream))
            for name in old:
                remove(os.path.join(self._options.payload_folder, name))
            log.info("job %s: removed %d payload files without a request", self._job, len(old))
        self._next_sweep = time.monotonic() + SWEEP_AGE

    def _with_path(self, entry: Entry) -> Entry:
        if self._folder is None:
            raise InvalidInput("field 'data_file' names a file, but this job has no folder for files (payloadFolder)")
        return entry._replace(path=self._folder.locate(entry.file))

    def refuse(self, *refused: tuple[Entry, ServingError]) -> None:
        """Answer requests with errors."""
        answers = [Answer(self._located(entry), "", encode_error(error)) for entry, error in refused]
        write_answers(self._client, self._job, self._options.result_ttl_s, answers, self._options.version)

    def _located(self, entry: Entry) -> Entry:
        """Return a request with the path of its file, which is removed with it, unless the path is refused."""
        if entry.file and not entry.path:
            with suppress(InvalidInput):
                return self._with_path(entry)
        return entry

    def _old_files(self) -> Iterator[str]:
        before = time.time() - SWEEP_AGE
        try:
            with os.scandir(self._options.payload_folder) as files:
                for file in files:
                    try:
                        status = file.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        # Its request was answered just now.
                        continue
                    if is_payload(file.name) and stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                        yield file.name
        except OSError as error:
            log.warning("job %s: the folder of payload files cannot be read: %s", self._job, error)

    def _referred(self, stream: str) -> Iterator[str]:
        last = NEWEST
        while last:
            last, entries = call(self._client, page_call(stream, last, "data_file"))
            yield from (name.decode("ascii", "replace") for _, name in entries)
