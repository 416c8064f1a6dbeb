"""Clients of every kind that ask one job without a pause, each kind in a process of its own, and note every request.

The model adds 1000 times its version to its input, so that an answer tells which version gave it, and whose it is.
"""

import asyncio
import gc
import multiprocessing
import threading
import time
import traceback
import uuid
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import grpc
import httpx
import numpy as np

from cluster_serving.client import AsyncInputQueue, InputQueue, OutputQueue, original
from cluster_serving.frontend.proto import inference
from cluster_serving.protocol.errors import ServingError
from tests.support.fixtures import grpc_calls

STEP = 1000
"""What a version adds, times its number; inputs are smaller."""

TIMEOUT = 120.0
"""Seconds after which a request that was queued counts as lost."""

LOST, WRONG, UNNAMED = -1, 0, -1

_PAUSE_AFTER_ERROR = 0.1
_LARGE = 20_000
_IN_FLIGHT = 4


class Place(NamedTuple):
    """Where the job is asked."""

    job: str
    redis_port: int
    http_url: str
    grpc_address: str


@dataclass
class Notes:
    """What became of the requests of one kind of client, as arrays with an element per request.

    Attributes:
        sent: When they were sent (`time.monotonic`).
        ended: When their answers came, or when they were given up.
        given: The version whose answer it is; `WRONG` if it is none of this request's, `LOST` if there is none.
        named: The version that the answer names; `UNNAMED` if it names none.
        errors: Errors that clients saw instead of an answer, by name.
    """

    sent: np.ndarray
    ended: np.ndarray
    given: np.ndarray
    named: np.ndarray
    errors: Counter

    @property
    def answered(self):
        """When answers came."""
        return self.ended[self.given != LOST]


class _Asking:
    """What the clients of a process share: they take inputs from it, and give it answers."""

    def __init__(self, stopped, answered):
        self._stopped, self._answered = stopped, answered
        self._rows = []
        self._errors = Counter()
        self._next = 0
        self._lock = threading.Lock()

    @property
    def goes_on(self):
        return not self._stopped.is_set()

    def input(self, largest=3):
        """Return the input of the next request; every tenth is large, if that is allowed."""
        with self._lock:
            self._next += 1
            number = self._next
        return np.full(largest if number % 10 == 0 else 3, number % (STEP - 1) + 1, "f4")

    def answer(self, sent, x, y, named):
        """Note an answer `y`, which names a version or None."""
        ended = time.monotonic()
        added = np.asarray(y, "f8") - x if np.size(y) == x.size else np.array([0.5])
        version, rest = divmod(added.flat[0], STEP)
        is_right = not rest and version >= 1 and np.all(added == added.flat[0])
        self._rows.append((sent, ended, version if is_right else WRONG, UNNAMED if named in (None, "") else int(named)))
        self._answered.value += 1

    def lost(self, sent, error):
        """Note that a request has no answer."""
        self._rows.append((sent, time.monotonic(), LOST, UNNAMED))
        self._errors[error] += 1

    def notes(self):
        columns = np.array(self._rows or np.empty((0, 4)), "f8").T
        return Notes(*columns, self._errors)


def _python(place, asking):
    with InputQueue(port=place.redis_port, name=place.job) as requests:
        while asking.goes_on:
            x, sent = asking.input(_LARGE), time.monotonic()
            try:
                result = requests.predict({"x": x}, timeout=TIMEOUT)
                asking.answer(sent, x, result.value, result.version)
            except ServingError as error:
                asking.lost(sent, type(error).__name__)


def _queued(place, asking):
    """Queues some requests, and then collects the oldest."""
    queues = InputQueue(port=place.redis_port, name=place.job), OutputQueue(port=place.redis_port, name=place.job)
    with queues[0] as requests, queues[1] as results:
        due = deque()
        while due or asking.goes_on:
            while asking.goes_on and len(due) < _IN_FLIGHT:
                x, sent = asking.input(_LARGE), time.monotonic()
                due.append((requests.enqueue(uuid.uuid4().hex, x=x), x, sent))
            uri, x, sent = due.popleft()
            try:
                result = results.query_and_delete(uri, timeout=TIMEOUT)
                asking.answer(sent, x, result.value, result.version)
            except ServingError as error:
                asking.lost(sent, type(error).__name__)


def _asyncio(place, asking):
    async def ask(requests):
        while asking.goes_on:
            x, sent = asking.input(_LARGE), time.monotonic()
            try:
                result = await requests.predict({"x": x}, timeout=TIMEOUT)
                asking.answer(sent, x, result.value, result.version)
            except ServingError as error:
                asking.lost(sent, type(error).__name__)

    async def ask_all():
        async with AsyncInputQueue(port=place.redis_port, name=place.job) as requests:
            await asyncio.gather(*(ask(requests) for _ in range(_IN_FLIGHT)))

    asyncio.run(ask_all())


def _original(place, asking):
    """Polls for its results, as programs of the original's client do."""
    requests = original.InputQueue(port=place.redis_port, name=place.job)
    results = original.OutputQueue(port=place.redis_port, name=place.job)
    while asking.goes_on:
        x, uri, sent = asking.input(), uuid.uuid4().hex, time.monotonic()
        requests.enqueue(uri, x=x)
        answer = "[]"
        while isinstance(answer, str) and answer == "[]" and time.monotonic() < sent + TIMEOUT:
            time.sleep(0.01)
            answer = results.query_and_delete(uri)
        if isinstance(answer, str):
            asking.lost(sent, answer)
        else:
            asking.answer(sent, x, answer, None)


def _over_http(place, asking, path, body, read):
    with httpx.Client(base_url=place.http_url, timeout=TIMEOUT) as client:
        while asking.goes_on:
            x, sent = asking.input(), time.monotonic()
            try:
                response = client.post(path, json=body(x))
            except httpx.HTTPError as error:
                asking.lost(sent, type(error).__name__)
            else:
                if response.status_code == 200:
                    asking.answer(sent, x, *read(response.json()))
                    continue
                asking.lost(sent, f"HTTP {response.status_code}")
            time.sleep(_PAUSE_AFTER_ERROR)


def _predict(place, asking):
    def body(x):
        return {"instances": [{"x": x.tolist()}]}

    def read(answer):
        (prediction,) = answer["predictions"]
        return prediction.get("value", prediction.get("error")), prediction.get("version")

    _over_http(place, asking, "/predict?responseFormat=json", body, read)


def _v2(place, asking):
    def body(x):
        return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, x.size], "data": x.tolist()}]}

    def read(answer):
        return answer["outputs"][0]["data"], answer.get("model_version")

    _over_http(place, asking, f"/v2/models/{place.job}/infer", body, read)


def _grpc(place, asking):
    with grpc.insecure_channel(place.grpc_address) as channel:
        call = grpc_calls.caller(channel, "inference.GRPCInferenceService")
        while asking.goes_on:
            x, sent = asking.input(), time.monotonic()
            message = grpc_calls.raw([x.tobytes()], (1, x.size), model_name=place.job)
            try:
                answer = call("ModelInfer", message, inference.ModelInferResponse, timeout=TIMEOUT)
            except grpc.RpcError as error:
                asking.lost(sent, error.code().name)
                time.sleep(_PAUSE_AFTER_ERROR)
            else:
                asking.answer(sent, x, np.frombuffer(answer.raw_output_contents[0], "f4"), answer.model_version)


KINDS = {
    "python": _python,
    "queued": _queued,
    "asyncio": _asyncio,
    "original": _original,
    "predict": _predict,
    "v2": _v2,
    "grpc": _grpc,
}
"""Kinds of clients, by name."""


def _run(kind, place, stopped, answered, pipe):
    asking = _Asking(stopped, answered)
    # A full collection of all that is imported takes 0.3 s, which the client would report as a wait.
    gc.collect()
    gc.freeze()
    try:
        KINDS[kind](place, asking)
    except Exception as error:
        traceback.print_exc()
        asking.lost(time.monotonic(), f"the client ended: {type(error).__name__}")
    pipe.send(asking.notes())


class Clients:
    """Clients of several kinds, which ask from the beginning of a `with` block to `stop`, or the end of the block."""

    def __init__(self, place, kinds=tuple(KINDS)):
        context = multiprocessing.get_context("spawn")
        self._stopped = context.Event()
        self._answered = {kind: context.Value("q", 0) for kind in kinds}
        self._pipes, self._processes = {}, []
        for kind, answered in self._answered.items():
            self._pipes[kind], theirs = context.Pipe(duplex=False)
            arguments = (kind, place, self._stopped, answered, theirs)
            self._processes.append(context.Process(target=_run, args=arguments, daemon=True))

    def __enter__(self):
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        with ExitStack() as stack:
            for process in self._processes:
                stack.callback(process.join, 10)
                stack.callback(process.kill)

    @property
    def answered(self):
        """Number of answers so far, by kind."""
        return {kind: count.value for kind, count in self._answered.items()}

    def stop(self):
        """Stop asking, wait for what is due, and return the notes by kind."""
        self._stopped.set()
        notes = {}
        for kind, pipe in self._pipes.items():
            assert pipe.poll(2 * TIMEOUT), f"the {kind} clients do not end"
            notes[kind] = pipe.recv()
        return notes
