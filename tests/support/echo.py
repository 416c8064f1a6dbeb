"""The job's side of the protocol, without a job."""

import contextlib
import threading

from redis.exceptions import RedisError

from cluster_serving.connectors.answer import Answer, write_answers
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.redis import connect
from cluster_serving.connectors.stream import StreamReader
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
