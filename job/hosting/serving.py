"""Serving of several models in one thread: requests are read, and gathered into batches, in fair turns."""

from __future__ import annotations

import logging
import math
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

from redis.exceptions import RedisError, ResponseError

from cluster_serving.connectors.slot.generation import GenerationView
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.permissions import refusal
from cluster_serving.connectors.slot.redis import Backoff, RedisClock, connect
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.connectors.slot.stage import MakeStage
from cluster_serving.job.hosting.alone import CALLS
from cluster_serving.job.hosting.blocking import BlockingRead, Replies
from cluster_serving.job.hosting.change import Change
from cluster_serving.job.hosting.leaving import Left
from cluster_serving.job.hosting.metrics import OncePerName
from cluster_serving.job.hosting.models import HostedModels
from cluster_serving.job.hosting.other_slots import OtherSlots, claim_all, forget_left
from cluster_serving.job.hosting.queue import Host, ModelQueue
from cluster_serving.job.hosting.turns import Turns
from cluster_serving.job.options import JobOptions
from cluster_serving.job.request import GatheredBatch
from cluster_serving.protocol.dedicated import DedicatedConnection
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.generations import IDLE_LOOK_S
from cluster_serving.protocol.keys import GROUP, JobKeys

log = logging.getLogger(__name__)

# Flink cancels, and updates metrics, when a turn ends.
_LONGEST_TURN_S, _LONGEST_WAIT_S = 0.2, 1.0
_CANCEL_LOOK_S = 0.2
_LATE_S = 0.05
"""Seconds of a batch after which other slots get what was read for this one."""

_LATELY_S = 1.0
"""Seconds after its last request for which a model is read as the only model of a job is."""

_LATELY_BLOCK_MS, _OTHERS_BLOCK_MS = 250, 1000
_MOST_READS = 8
"""Most reads that wait for models that were used lately. A read cannot be changed while it waits."""

_IDLE_BLOCK_MS = 5000
_KEEP_S = 3.0
"""Seconds between two looks for what Redis has lost."""

_GONE = ("NOGROUP", "UNBLOCKED")


class Serving:
    """Requests of all models of one slot; used by one thread.

    The streams of a model in its turn are read as those of a job of one model are. Reads that wait in Redis have the
    others. A few have those of models that were used lately. One has those of all the rest, and takes a request of each
    stream: their number does not count while others are served.

    Args:
        options: Options of the job.
        shared: What the slot of the job shares.
        models: The models that are loaded.
        stages: What makes the stages of a queue, in their order.
        metrics: Metrics of the function that reads.
        is_cancelled: Returns True if Flink cancels the slot.

    Attributes:
        names: Name of the model by the id of the flow control that its requests come through.
    """

    def __init__(
        self,
        options: JobOptions,
        shared: SharedSlot,
        models: HostedModels,
        stages: Sequence[MakeStage],
        metrics: Metrics,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._options = options
        self._shared = shared
        self._models = models
        self._is_cancelled = is_cancelled
        consumer = JobKeys(options.redis.job).consumer(0, shared.index)
        client = connect(options.redis)
        self._host = Host(
            *(shared.index, client, DedicatedConnection(client), RedisClock(client)),
            *(GenerationView(client, options.redis), consumer, OncePerName(metrics), stages),
            options.model_parallelism,
        )
        several = options.model_parallelism > 1
        self._others_of_job = OtherSlots(self._host, options) if several else None
        self._left = Left.of(options.redis.name) if several else None
        self._lock = threading.Lock()
        self._began = 0.0
        """Begin of the batch that is computed; 0 for none."""
        name = f"requests of the models of job {options.redis.job}"
        self._backoff = Backoff(name, metrics.counter("reconnects").inc, shared.counts)
        self._lately = [BlockingRead(client, consumer) for _ in range(_MOST_READS)]
        self._others = BlockingRead(client, consumer)
        self._queues: dict[str, ModelQueue] = {}
        self._turns = Turns()
        self._used_at: dict[str, float] = {}
        self._has_looked = False
        self._next_keep = 0.0
        self._next_look = self._next_view = 0.0
        self.names: dict[str, str] = {}

    def turn(self) -> Iterator[GatheredBatch]:
        """Serve for a bounded time; wait for requests if there are none. Each batch is answered when it is yielded."""
        with self._lock:
            for batch in self._turn():
                self._began = time.monotonic()
                self._lock.release()
                try:
                    yield batch
                finally:
                    self._lock.acquire()
                    self._began = 0.0

    @property
    def is_late(self) -> bool:
        """True while a batch takes long."""
        began = self._began
        return bool(began) and time.monotonic() - began > _LATE_S

    def leave(self) -> None:
        """Leave what was read meanwhile to other slots, if a batch takes long; the thread of the source calls this."""
        if self._left is None or not self.is_late or not self._lock.acquire(blocking=False):
            return
        try:
            if self.is_late:
                self._end_reads()
                for name, queue in self._queues.items():
                    if entries := queue.leave():
                        self._left.put(name, entries)
        except RedisError:
            self._has_looked = False
        finally:
            self._lock.release()

    def _turn(self) -> Iterator[GatheredBatch]:
        now = time.monotonic()
        end = now + _LONGEST_WAIT_S
        is_busy = False
        while time.monotonic() < end:
            try:
                while change := self._models.due:
                    yield from self._change(change)
                name = self._next()
            except RedisError as error:
                self._failed(error)
                return
            if name:
                if not is_busy:
                    is_busy, end = True, time.monotonic() + _LONGEST_TURN_S
                with self._beside(name):
                    try:
                        entries = self._queue(name).read()
                    except RedisError as error:
                        self._failed(error)
                        return
                    yield from self._served(name, entries)
            self._backoff.succeeded()
            for name in [name for name, queue in self._queues.items() if queue.next_expiry is not None]:
                if (self._queues[name].next_expiry or 0) <= time.time() * 1000:
                    with self._beside(name):
                        yield from self._expired(name)
            if self._is_cancelled():
                return

    def close(self) -> None:
        """Release the connections; requests that are not answered stay pending."""
        with ExitStack() as closing:
            closing.callback(self._host.client.close)
            closing.callback(self._host.connection.close)
            for read in (*self._lately, self._others):
                closing.callback(read.close)
            for queue in self._queues.values():
                closing.callback(queue.close)

    @property
    def is_idle(self) -> bool:
        """True if no model was asked lately."""
        return not self._used_at

    def _beside(self, name: str) -> AbstractContextManager[None]:
        """Return what a batch of a model is computed in: beside other slots, or alone after a crash."""
        if self._others_of_job is None:
            return nullcontext()
        return CALLS.alone() if self._queue(name).recovering else CALLS.among_others()

    def _served(self, name: str, entries: Sequence[Entry]) -> Iterator[GatheredBatch]:
        queue, began = self._queues[name], time.monotonic()
        if entries:
            self._used_at[name] = began
            yield from queue.gather(entries)
        self._turns.spent(name, time.monotonic() - began, queue.goes_on)

    def _change(self, change: Change) -> Iterator[GatheredBatch]:
        """Let another model serve the requests of a name, or none if it has gone."""
        name, earlier = change.name, self._queues.pop(change.name, None)
        if earlier is not None:
            # What has been gathered is computed by the model that it was gathered for.
            with nullcontext() if self._left is None else CALLS.among_others():
                yield from earlier.expire(math.inf)
            del self.names[earlier.flow.id]
            earlier.close()
        self._models.apply(change)
        if name not in self._models.queues:
            self._turns.remove(name)
            self._used_at.pop(name, None)
            return
        if earlier is not None:
            self._queue(name).succeed(earlier)
        # A read that waits now has no streams of a new model.
        self._used_at[name] = time.monotonic()
        self._turns.add(name)

    def _expired(self, name: str) -> Iterator[GatheredBatch]:
        began = time.monotonic()
        yield from self._queues[name].expire(time.time() * 1000)
        goes_on = name in self._turns
        self._turns.add(name)
        self._turns.spent(name, time.monotonic() - began, goes_on)

    def _next(self) -> str | None:
        """Return the model that is served next; wait for requests for a moment if there are none."""
        self._look()
        if not self._host.view.reads:
            time.sleep(_CANCEL_LOOK_S / 4)
            return None
        self._collect()
        name = self._turns.next()
        if name is None:
            self._wait()
            self._collect()
            name = self._turns.next()
        return name

    def _look(self) -> None:
        """Do what is due: look at the generations, and for what is pending, and for what Redis has lost."""
        view, now = self._host.view, time.monotonic()
        # An idle job looks now and then only.
        if now >= self._next_view:
            self._next_view = now + (0.0 if self._used_at else IDLE_LOOK_S)
            view.look()
        self._shared.ticks.generations = view.fields
        self._shared.ticks.problem = ""
        if self._others_of_job is not None:
            for name in self._others_of_job.take_over([*self._models.queues], self.is_idle):
                self._queue(name).start_over()
                self._turns.add(name)
        if now >= self._next_keep:
            self._next_keep = now + _KEEP_S
            if not self._models.is_described():
                log.warning("job %s: Redis has lost the description of its models, writing it again", view.key)
                self._models.publish()
        if not self._has_looked or now >= self._next_look:
            self._next_look = now + self._options.redis.claim_idle_time_s / 4
            self._look_for_pending()
            self._has_looked = True

    def _look_for_pending(self) -> None:
        """Find requests that a crash has interrupted, or that another job has left."""
        names = [*self._models.queues]
        streams = [(name, stream) for name in names for stream in JobKeys(name).streams]
        with self._host.client.pipeline(transaction=False) as pipeline:
            for _, stream in streams:
                pipeline.xpending(stream, GROUP)
            replies = pipeline.execute(raise_on_error=False)
        own = self._host.consumer.encode()
        if self._host.index == 0 and not self._has_looked:
            forget_left(self._host, self._options.redis.job)
        for (name, stream), reply in zip(streams, replies, strict=True):
            if isinstance(reply, Exception):
                if not (isinstance(reply, ResponseError) and _is_gone(reply)):
                    raise reply
                create_groups(self._host.client, name)
                continue
            consumers = {each["name"] for each in reply["consumers"]}
            if self._host.index == 0 and (left := [each for each in consumers if self._host.is_left(each)]):
                claim_all(self._host, stream, left)
                consumers.add(own)
            if consumers and (consumers != {own} or not self._has_looked):
                queue = self._queue(name)
                if not self._has_looked and own in consumers:
                    queue.start_over()
                self._turns.add(name)

    def _queue(self, name: str) -> ModelQueue:
        if name not in self._queues:
            model = self._models.queues[name]
            self._queues[name] = queue = ModelQueue(self._host, model.options, model.shared.counts)
            self.names[queue.flow.id] = name
        return self._queues[name]

    @property
    def _waiting(self) -> list[BlockingRead]:
        return [read for read in (*self._lately, self._others) if read.waits]

    def _collect(self) -> None:
        """Take what the waiting reads have found, and let a read wait for each model that is not in a turn."""
        self._end_reads()
        while self._left is not None and (left := self._left.take(self._models.queues)):
            name, entries = left
            self._queue(name).hold(entries)
            self._used_at[name] = time.monotonic()
            self._turns.add(name)
        now = time.monotonic()
        used = {name for name, at in self._used_at.items() if now - at < _LATELY_S}
        if not self._others.waits and (others := [name for name in self._models.queues if name not in used]):
            self._others.begin(others, 1, _OTHERS_BLOCK_MS if self._used_at else _IDLE_BLOCK_MS)
        # A model that was used before stays in these reads until it is in the one of all others.
        for name in [name for name in self._used_at if name not in used]:
            if self._others.waits and name in self._others.names:
                del self._used_at[name]
        covered = frozenset[str]().union(*(read.names for read in self._waiting))
        names = [name for name in self._used_at if name not in covered and name not in self._turns]
        if names and (free := next((read for read in self._lately if not read.waits), None)):
            count = max(1, self._options.batch.max_batch_size // len(names))
            # The slots share the requests of slow models.
            is_shared = any(self._queue(name).is_shared for name in names)
            free.begin(names, 1 if is_shared else count, _LATELY_BLOCK_MS)

    def _end_reads(self) -> None:
        """Take what the waiting reads have found."""
        for read in self._waiting:
            try:
                self._give(read.end(), read.count)
            except ResponseError as error:
                if not _is_gone(error):
                    raise
                log.warning("job %s: a stream or its group has disappeared", self._options.redis.job)
                for name in self._models.queues:
                    create_groups(self._host.client, name)

    def _wait(self) -> None:
        """Wait until one of the reads finds a request, a batch has waited long enough, or Flink has to be looked at."""
        timeout = _CANCEL_LOOK_S
        expiries = [at for queue in self._queues.values() if (at := queue.next_expiry) is not None]
        if expiries:
            timeout = max(0.0, min(timeout, min(expiries) / 1000 - time.time()))
        sockets = [socket for read in self._waiting for socket in read.sockets]
        select.select([*sockets, self._left.socket] if self._left else sockets, [], [], timeout)

    def _give(self, replies: Replies, count: int) -> None:
        by_name: dict[str, Replies] = {}
        for stream, raw in replies:
            by_name.setdefault(stream.decode().partition(":")[0], []).append((stream, raw))
        now = time.monotonic()
        for name, found in by_name.items():
            if name not in self._models.queues:
                continue
            self._queue(name).give(found, count)
            self._used_at[name] = now
            self._turns.add(name)

    def _failed(self, error: RedisError) -> None:
        """Begin anew once Redis answers: it may have delivered requests in a reply that was lost."""
        self._has_looked = False
        self._turns.clear()
        for read in (*self._lately, self._others):
            read.close()
        for queue in self._queues.values():
            queue.start_over()
        self._shared.ticks.problem = str(refusal(self._host.client, error) or "")
        self._backoff.failed(error)


def _is_gone(error: ResponseError) -> bool:
    return any(code in str(error) for code in _GONE)
