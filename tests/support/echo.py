"""The job's side of the protocol, without a job."""

import contextlib
import threading

from redis.exceptions import RedisError

from cluster_serving.connectors.answer import Answer, write_answers
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.redis import connect
from cluster_serving.connectors.stream import StreamReader, create_group
from cluster_serving.protocol.results import encode_result


class Echo:
    """The job's side of the protocol: reads requests and answers them with their inputs, whatever Redis does."""

    def __init__(self, url, job):
        self._options = RedisOptions(url, job, timeout_ms=1000)
        self._job = job
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *exc):
        self._stopped.set()
        self._thread.join()

    def _run(self):
        with connect(self._options) as client:
            reader = StreamReader(client, self._job, "echo-0", 60_000)
            while not self._stopped.is_set():
                with contextlib.suppress(RedisError):
                    self._answer(client, reader)

    def _answer(self, client, reader):
        try:
            if reader.recovering:
                found = reader.recover(0.1)
                entries = [found[0]] if found else []
            else:
                entries = reader.read(10, 50)
            if entries:
                write_answers(client, self._job, 60, [Answer(e, "", _echo(e)) for e in entries])
        except RedisError:
            reader.start_over()
            raise


def _echo(entry):
    inputs = entry.decode()[1]
    return encode_result(entry.native, list(inputs), list(inputs.values()))


class Failing:
    """The job's side of the protocol: answers every request of a job with an error while it is open."""

    def __init__(self, db, job):
        create_group(db, job)
        self._stopped = threading.Event()
        self._reader = StreamReader(db, job, "echo-0", claim_idle_ms=60_000)
        self._thread = threading.Thread(target=self._run, args=(db, job))

    def _run(self, db, job):
        while not self._stopped.is_set():
            if entries := self._reader.read(10, block_ms=20):
                write_answers(db, job, 60, [Answer(entry, "", {"value": "NaN", "code": "X"}) for entry in entries])

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()
