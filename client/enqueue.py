"""Queueing of requests: their options, and the wait for room in a full queue."""

from __future__ import annotations

import asyncio
import math
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from redis.exceptions import RedisError, ResponseError

from cluster_serving.client.positions import Position
from cluster_serving.protocol.entry import PIECES, request_fields
from cluster_serving.protocol.errors import InvalidInput, ModelError, QueueFull, ServingError
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.keys import NORMAL, PRIORITIES, JobKeys, as_text, to_bytes
from cluster_serving.protocol.redis.connection import Client, is_out_of_memory, translated
from cluster_serving.protocol.scripts import ADD, QUEUE_LENGTH, Argument, Call, Pause, Procedure, flat

if TYPE_CHECKING:
    from cluster_serving.client.sending.outlet import Outlet

_MIN_PAUSE, _MAX_PAUSE = 0.004, 0.25
_MIN_DEADLINE_S = 0.001
_MAX_DEADLINE_MS = 10**14
_VERSION = re.compile("[0-9]{1,18}")


@dataclass(frozen=True)
class RequestOptions:
    """The options of one request: keyword arguments of `enqueue` that are not inputs of the model; see `split`.

    Attributes:
        deadline: Seconds that the request may wait before it is computed; None for the job's `requestDeadline`, `inf`
            for no limit.
        priority: One of `protocol.keys.PRIORITIES`.
        block: True to wait for room in a full queue; None waits if there is a timeout.
        timeout: Seconds to wait for room; None for no limit.
        version: Version of the model that is to answer, as text or number; None for the one that is served.
    """

    deadline: float | None = None
    priority: str | None = None
    block: bool | None = None
    timeout: float | None = None
    version: str | int | None = None

    def __post_init__(self) -> None:
        if self.deadline is not None and not (_is_number(self.deadline) and self.deadline > 0):
            raise _refused("deadline", self.deadline, "seconds, more than 0")
        if self.priority is not None and self.priority not in PRIORITIES:
            raise _refused("priority", self.priority, " or ".join(PRIORITIES))
        if self.block is not None and not isinstance(self.block, bool):
            raise _refused("block", self.block, "True or False")
        if self.timeout is not None and not (_is_number(self.timeout) and self.timeout >= 0):
            raise _refused("timeout", self.timeout, "seconds, 0 or more")
        if self.version is not None and not _VERSION.fullmatch(str(self.version)):
            raise _refused("version", self.version, "the number of a version of the model, such as '2'")

    @classmethod
    def waiting(cls, timeout: float, priority: str = NORMAL, version: str | int | None = None) -> RequestOptions:
        """Return the options of a request whose caller waits so many seconds for the result."""
        try:
            seconds = float(timeout) if isinstance(timeout, Real) else math.nan
        except OverflowError:
            seconds = math.inf
        if not seconds >= 0:
            raise InvalidInput(f"timeout is {timeout!r:.64} ({type(timeout).__name__}); expected seconds, 0 or more")
        return cls(deadline=max(seconds, _MIN_DEADLINE_S), priority=priority, version=version)

    @property
    def retry_budget(self) -> float:
        """Seconds to wait for room in the queue."""
        block = self.timeout is not None if self.block is None else self.block
        return (math.inf if self.timeout is None else self.timeout) if block else 0.0

    @property
    def deadline_ms(self) -> int | None:
        """The deadline as it is sent: whole milliseconds, 0 for no limit; None for the job's default."""
        if self.deadline is None:
            return None
        return math.ceil(self.deadline * 1000) if self.deadline * 1000 < _MAX_DEADLINE_MS else 0

    @property
    def version_text(self) -> str:
        """The version as it is sent; empty for any."""
        return "" if self.version is None else str(self.version)


DEFAULTS = RequestOptions()

_NAMES = frozenset(RequestOptions.__dataclass_fields__)
_SIMILARITIES = {"version": 0.8}
"""Least similarities to options whose names resemble usual names of inputs: region, session, person."""


def split(inputs: object, keywords: Mapping[str, object]) -> tuple[RequestOptions, object]:
    """Split the arguments of `enqueue` into options and inputs.

    Inputs in an argument of their own cannot collide with options: all keywords are options then. Inputs as keywords
    differ from options by type. A plain Python value (None, bool, int, float or str) under the name of an option, or
    under a similar name, is never an input; anything else, such as an array, is one.

    Args:
        inputs: Inputs in one of the forms that `predict` takes; None if the inputs are keywords.
        keywords: Options, and perhaps inputs, which keep their order.

    Raises:
        InvalidInput: If a keyword is neither; or see `RequestOptions`.
    """
    if inputs is not None:
        for name in keywords.keys() - _NAMES:
            hint = f"; is it {_nearest(name)!r}?" if _nearest(name) else "."
            raise InvalidInput(
                f"there is no option {name!r}{hint} Besides a dict of inputs, the keywords are "
                f"{', '.join(RequestOptions.__dataclass_fields__)}"
            )
        options: Any = keywords
        return RequestOptions(**options) if options else DEFAULTS, inputs
    options = {name: value for name, value in keywords.items() if _plain(value) and _nearest(name)}
    if not options:
        return DEFAULTS, keywords
    for name in options.keys() - _NAMES:
        raise InvalidInput(
            f"{name!r} is not an option; is it {_nearest(name)!r}? An input of that name is sent in a dict: "
            f"enqueue(uri, {{{name!r}: …}})"
        )
    return RequestOptions(**options), {name: value for name, value in keywords.items() if name not in options}


@lru_cache(maxsize=256)
def _nearest(name: str) -> str:
    """Return the option that a name resembles; empty if there is none."""
    close = get_close_matches(name, _NAMES - _SIMILARITIES.keys(), 1)
    close += (option for option, least in _SIMILARITIES.items() if get_close_matches(name, [option], 1, least))
    return next(iter(close), "")


def _plain(value: object) -> bool:
    # numpy's float64 is a subclass of float, but counts as an array.
    return value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, np.generic))


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _refused(name: str, value: object, expected: str) -> InvalidInput:
    return InvalidInput(
        f"option {name!r} is {str(value)[:64]!r} ({type(value).__name__}); expected {expected}. "
        f"An input of that name is sent in a dict: enqueue(uri, {{{name!r}: …}})"
    )


def add_call(
    job: str, requests: Iterable[tuple[Mapping[str, str | bytes], str]], earlier_results: Sequence[bytes] = ()
) -> Call:
    """Return the call that queues requests. Its reply has the entry id of each, or a reply for `refusal`.

    Args:
        job: `jobName`.
        requests: Fields (see `protocol.entry.request_fields`) and priority of each; at most a few MiB in all, since
            Redis serves no other client meanwhile.
        earlier_results: Keys of earlier results of the first request's uri, to be deleted.
    """
    names = JobKeys(job)
    keys: list[str | bytes] = [names.limits, *names.streams, *earlier_results]
    arguments: list[Argument] = []
    for fields, priority in requests:
        # Index of the stream among the keys; Lua counts from 1.
        arguments += [keys.index(names.stream(priority)) + 1, 2 * len(fields), *flat(fields)]
    return Call(ADD, keys, arguments)


def refusal(client: Client, job: str, reply: Exception | Sequence[Any]) -> ServingError:
    """Return the error for a reply to `add_call` that is no entry id; a new one, since errors collect tracebacks."""
    if not isinstance(reply, Exception):
        return _unqueued(job, reply)
    if isinstance(reply, ServingError):
        return reply.renewed()
    try:
        with translated(client):
            raise reply
    except ServingError as error:
        return error


def enqueue(
    job: str,
    uri: str,
    inputs: Mapping[str, Input],
    options: RequestOptions,
    outlet: Outlet,
    reply_to: str = "",
    reply_with: bytes = b"",
) -> Procedure[Position]:
    """Queue a request as soon as there is room; return the position of its stream entry.

    See `protocol.entry.Entry` for `reply_to` and `reply_with`. Without `reply_to`, an earlier result of the uri is
    deleted.

    Raises:
        InvalidInput: If the uri or an input cannot be sent; nothing was queued.
        QueueFull: If there was no room in time; nothing was queued.
        ModelError: If the model was removed from its job; nothing was queued.
    """
    parcel = yield from outlet.open(job, inputs)
    fields = request_fields(
        uri,
        inputs,
        reply_to,
        options.deadline_ms,
        reply_with=reply_with,
        store=parcel.store,
        version=options.version_text,
        traceparent=parcel.traceparent,
    )
    priority = options.priority or NORMAL
    keys = JobKeys(job)
    pieces = [to_bytes(keys.pieces(uri))] if reply_with == PIECES else []
    earlier = [] if reply_to else [*keys.results(uri), *pieces]
    call = add_call(job, [(fields, priority)], earlier)
    try:
        entry_id = yield from _add_in_time(job, call, options.retry_budget)
    except (ServingError, RedisError, asyncio.CancelledError, KeyboardInterrupt) as error:
        parcel.close(fields, error)
        raise
    parcel.close(fields, None)
    return Position(keys.stream(priority), entry_id)


def _add_in_time(job: str, call: Call, retry_budget: float) -> Procedure[bytes]:
    give_up = time.monotonic() + retry_budget
    waits = pauses()
    while True:
        try:
            (reply,) = yield call
            if isinstance(reply, bytes):
                return reply
            raise reply if isinstance(reply, ResponseError) else _unqueued(job, reply)
        except (QueueFull, ResponseError) as error:
            if not isinstance(error, QueueFull) and not is_out_of_memory(error):
                raise
            # Asking for the length is cheap; sending a request that is refused again is not.
            length, limit = 1, 1
            while length >= limit:
                left = give_up - time.monotonic()
                if left <= 0:
                    raise
                yield Pause(min(next(waits), left))
                length, limit = yield Call(QUEUE_LENGTH, call.keys[:4])


def _unqueued(job: str, reply: Sequence[Any]) -> ServingError:
    if len(reply) == 1:
        return ModelError(as_text(reply[0]))
    length, limit = reply
    return QueueFull(
        f"the queue of job {job!r} holds {length} requests, and maxQueueLength is {limit}; nothing was queued"
    )


def pauses() -> Iterator[float]:
    """Yield growing pauses, with a random part so that clients do not try at the same time."""
    pause = _MIN_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1)  # noqa: S311 - no secret
        pause = min(_MAX_PAUSE, pause * 1.5)
