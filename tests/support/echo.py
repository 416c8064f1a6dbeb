"""The job's side of the protocol, without a job."""

import contextlib
import threading

from redis.exceptions import RedisError

from cluster_serving.connectors.answer import Answer, write_answers
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.redis import connect
from cluster_serving.connectors.stream import StreamReader, create_group
from cluster_serving.protocol.results import encode_result


@contextlib.contextmanager
def answering(db, job, answer):
    """Answer every request of a job while the context is open.

    Args:
        db: Redis client.
        job: `jobName`.
        answer: Function from an entry to the fields of its result.
    """
    stopped = threading.Event()
    create_group(db, job)
    reader = StreamReader(db, job, "echo-0", claim_idle_ms=60_000)

    def run():
        while not stopped.is_set():
            if entries := reader.read(50, block_ms=20):
                write_answers(db, job, 60, [Answer(entry, "", answer(entry)) for entry in entries])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def failing(db, job):
    """Answer every request of a job with an error while the context is open."""
    return answering(db, job, lambda entry: {"value": "NaN", "code": "X"})


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
