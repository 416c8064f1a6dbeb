"""Serving of several models in one thread: requests are read, and gathered into batches, in fair turns."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress

from redis.exceptions import RedisError, ResponseError

from cluster_serving.connectors.slot.generation import GenerationView
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.permissions import refusal
from cluster_serving.connectors.slot.redis import Backoff, RedisClock, connect
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.connectors.slot.stage import MakeStage
from cluster_serving.connectors.slot.stream import GONE, StreamReader
from cluster_serving.job.hosting.alone import CALLS
from cluster_serving.job.hosting.blocking import Replies
from cluster_serving.job.hosting.change import Change
from cluster_serving.job.hosting.foreign import ForeignKeys
from cluster_serving.job.hosting.leaving import Left
from cluster_serving.job.hosting.left_in_redis import LeftInRedis
from cluster_serving.job.hosting.models import HostedModels
from cluster_serving.job.hosting.other_slots import OtherSlots, claim_all, forget_left
from cluster_serving.job.hosting.queue import Host, ModelQueue
from cluster_serving.job.hosting.reads import WaitingReads
from cluster_serving.job.hosting.turns import Turns
from cluster_serving.job.options import JobOptions
from cluster_serving.job.request import GatheredBatch
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.generations import IDLE_LOOK_S
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.redis.connection import foreign_key
from cluster_serving.protocol.redis.dedicated import DedicatedConnection

log = logging.getLogger(__name__)

# Flink cancels, and updates metrics, when a turn ends.
_LONGEST_TURN_S, _LONGEST_WAIT_S = 0.2, 1.0
# In process mode it ends the process though a turn goes on; few turns may end, see `connectors.slot.reading`.
_LONGEST_OF_PROCESS_S = 5.0
_CANCEL_LOOK_S = 0.2
_LATE_S = 0.05
"""Seconds of a batch after which other slots get what was read for this one."""

_KEEP_S = 3.0
"""Seconds between two looks for what Redis has lost."""


class Serving:
    """Requests of all models of one slot; used by one thread.

    The streams of a model in its turn are read as those of a job of one model are. Reads that wait in Redis have the
    others (`WaitingReads`). A turn costs the same however many models there are.

    Args:
        options: Options of the job.
        shared: What the slot of the job shares.
        models: The models that are loaded.
        stages: What makes the stages of a queue, in their order.
        metrics: Metrics of the function that reads.
        end: File in which the process records its end, see `Attempt.end`.
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
        end: str = "",
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._options = options
        self._shared = shared
        self._models = models
        self._is_cancelled = is_cancelled
        self._longest_turn_s, self._longest_wait_s = _LONGEST_TURN_S, _LONGEST_WAIT_S
        if options.execution_mode == "process":
            self._longest_turn_s = self._longest_wait_s = _LONGEST_OF_PROCESS_S
        consumer = JobKeys(options.redis.job).consumer(0, shared.index)
        client = connect(options.redis)
        self._host = Host(
            *(shared.index, client, DedicatedConnection(client), RedisClock(client)),
            *(GenerationView(client, options.redis), consumer, metrics, stages),
            *(options.model_parallelism, end),
        )
        several = options.model_parallelism > 1
        self._others_of_job = OtherSlots(self._host, options) if several else None
        self._left = _left(self._host, options) if several else None
        self._lock = threading.Lock()
        self._began = 0.0
        """Begin of the batch that is computed; 0 for none."""
        name = f"requests of the models of job {options.redis.job}"
        self._backoff = Backoff(name, metrics.counter("reconnects").inc, shared.counts)
        self._reads = WaitingReads(client, consumer, options.batch.max_batch_size)
        self._foreign = ForeignKeys(client)
        self._queues: dict[str, ModelQueue] = {}
        self._turns = Turns()
        # Names of queues with batches that wait for more requests.
        self._gathering: dict[str, None] = {}
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
    def is_idle(self) -> bool:
        """True if no model was asked lately."""
        return self._reads.is_idle

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
                self._end_reads(0.0)
                for name, queue in self._queues.items():
                    if entries := queue.leave():
                        self._left.put(name, entries)
        except RedisError:
            self._has_looked = False
        finally:
            self._lock.release()

    def _turn(self) -> Iterator[GatheredBatch]:
        now = time.monotonic()
        end = now + self._longest_wait_s
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
                    is_busy, end = True, time.monotonic() + self._longest_turn_s
                with self._beside(name):
                    try:
                        entries = self._queue(name).read()
                    except RedisError as error:
                        self._failed(error)
                        return
                    yield from self._served(name, entries)
            self._backoff.succeeded()
            for name in [*self._gathering]:
                if (self._queues[name].next_expiry or 0) <= time.time() * 1000:
                    with self._beside(name):
                        yield from self._expired(name)
            # A call into Java costs as much as a small read; a turn with requests is over soon.
            if not is_busy and self._is_cancelled():
                return

    def close(self) -> None:
        """Release the connections; requests that are not answered stay pending."""
        with ExitStack() as closing:
            closing.callback(self._host.client.close)
            closing.callback(self._host.connection.close)
            closing.callback(self._reads.close)
            for queue in self._queues.values():
                closing.callback(queue.close)

    def _beside(self, name: str) -> AbstractContextManager[None]:
        """Return what a batch of a model is computed in: beside other slots; alone after a crash, or if it may leak."""
        if self._others_of_job is None:
            return nullcontext()
        is_alone = self._queue(name).recovering or self._models.queues[name].is_suspected
        return CALLS.alone() if is_alone else CALLS.among_others()

    def _served(self, name: str, entries: Sequence[Entry]) -> Iterator[GatheredBatch]:
        queue, began = self._queues[name], time.monotonic()
        if entries:
            self._reads.note_used(name)
            yield from queue.gather(entries)
            if queue.next_expiry is not None:
                self._gathering[name] = None
        self._spent(name, began, queue.goes_on)

    def _spent(self, name: str, began: float, goes_on: bool) -> None:
        self._turns.spent(name, time.monotonic() - began, goes_on)
        if not goes_on:
            self._reads.leave(name)

    def _change(self, change: Change) -> Iterator[GatheredBatch]:
        """Let another model serve the requests of a name, or none if it has gone."""
        name, earlier = change.name, self._queues.get(change.name)
        if earlier is not None:
            # What has been gathered is computed by the model that it was gathered for.
            with nullcontext() if self._left is None else CALLS.among_others():
                yield from earlier.expire(math.inf)
            # Not before: `leave` may have given the queue requests meanwhile.
            del self._queues[name]
            self._gathering.pop(name, None)
            del self.names[earlier.flow.id]
            earlier.close()
        self._models.apply(change)
        if name not in self._models.queues:
            self._turns.remove(name)
            self._reads.remove(name)
            if earlier is not None:
                self._leave_to_others(name, earlier.leave())
            return
        if earlier is not None:
            self._queue(name).succeed(earlier)
        elif self._has_looked:
            # Requests that a read has found after an earlier model of this name had left are pending.
            self._queue(name).start_over()
        # A read that waits now has no streams of a new model.
        self._reads.note_used(name)
        self._turns.add(name)

    def _expired(self, name: str) -> Iterator[GatheredBatch]:
        queue, began = self._queues[name], time.monotonic()
        yield from queue.expire(time.time() * 1000)
        if queue.next_expiry is None:
            del self._gathering[name]
        goes_on = name in self._turns
        self._turns.add(name)
        self._spent(name, began, goes_on)

    def _next(self) -> str | None:
        """Return the model that is served next; wait for requests for a moment if there are none."""
        self._look()
        if not self._host.view.reads:
            time.sleep(_CANCEL_LOOK_S / 4)
            return None
        self._collect(0.0)
        name = self._turns.next()
        if name is None:
            self._collect(self._longest_wait)
            name = self._turns.next()
        return name

    def _look(self) -> None:
        """Do what is due: look at the generations, and for what is pending, and for what Redis has lost."""
        view, now = self._host.view, time.monotonic()
        # An idle job looks now and then only.
        if now >= self._next_view:
            may_wait = self._reads.is_idle and not isinstance(self._left, LeftInRedis)
            self._next_view = now + (IDLE_LOOK_S if may_wait else 0.0)
            view.look()
        self._shared.ticks.generations = view.fields
        self._shared.ticks.problem = ""
        if now >= self._next_keep:
            self._next_keep = now + _KEEP_S
            if not self._models.is_described():
                log.warning(
                    "job %s: Redis has lost the description of its models, writing it again", self._options.redis.job
                )
                self._models.publish()
            if self._foreign.names and self._foreign.look(self._models.queues):
                self._has_looked = False
        if self._models.later:
            # Interrupted requests are computed alone, and a load that ends the process would be blamed on them.
            return
        if not self._has_looked or now >= self._next_look:
            self._next_look = now + self._options.redis.claim_idle_time_s / 4
            self._look_for_pending()
            self._has_looked = True
        # Streams that Redis has lost are there again.
        if self._others_of_job is not None:
            for name in self._others_of_job.take_over(self._read_names, self._reads.is_idle):
                self._queue(name).start_over()
                self._turns.add(name)

    def _look_for_pending(self) -> None:
        """Find requests that a crash has interrupted, or that another job has left."""
        streams = [(name, stream) for name in self._read_names for stream in JobKeys(name).streams]
        with self._host.client.pipeline(transaction=False) as pipeline:
            for _, stream in streams:
                pipeline.xpending(stream, GROUP)
            replies = pipeline.execute(raise_on_error=False)
        own = self._host.consumer.encode()
        for (name, stream), reply in zip(streams, replies, strict=True):
            if isinstance(reply, Exception):
                if not (isinstance(reply, ResponseError) and GONE.search(str(reply))):
                    raise reply
                create_groups(self._host.client, name)
                continue
            consumers = {each["name"] for each in reply["consumers"]}
            if self._host.index == 0 and (left := [each for each in consumers if self._host.is_left(each)]):
                claim_all(self._host, self._options.redis.job, stream, left)
                consumers.add(own)
            if consumers and (consumers != {own} or not self._has_looked):
                queue = self._queue(name)
                if not self._has_looked and own in consumers:
                    queue.start_over()
                if consumers != {own}:
                    queue.look_for_abandoned()
                self._turns.add(name)
        if self._host.index == 0 and not self._has_looked:
            forget_left(self._host, self._options.redis.job)

    def _queue(self, name: str) -> ModelQueue:
        if name not in self._queues:
            model = self._models.queues[name]
            self._queues[name] = queue = ModelQueue(self._host, model.options, model.shared.counts)
            self.names[queue.flow.id] = name
        return self._queues[name]

    def _collect(self, timeout: float) -> None:
        """Take what the waiting reads find up to `timeout` seconds; let reads wait for models that are in no turn."""
        self._end_reads(timeout)
        while self._left is not None and (left := self._left.take(self._models.queues)):
            name, entries = left
            self._queue(name).hold(entries)
            self._reads.note_used(name)
            self._turns.add(name)
        self._reads.begin(self._read_names, self._turns, self._is_shared)

    def _end_reads(self, timeout: float) -> None:
        try:
            for replies, count in self._reads.found(timeout, None if self._left is None else self._left.socket):
                self._give(replies, count)
        except ResponseError as error:
            if not GONE.search(str(error)):
                raise
            log.warning("job %s: a stream or its group has disappeared", self._options.redis.job)
            for name in self._read_names:
                create_groups(self._host.client, name)

    @property
    def _read_names(self) -> list[str]:
        return [name for name in self._models.queues if name not in self._foreign.names]

    def _is_shared(self, name: str) -> bool:
        return self._queue(name).is_shared

    @property
    def _longest_wait(self) -> float:
        """Seconds until a batch has waited long enough, or Flink has to be looked at."""
        expiries = [at for name in self._gathering if (at := self._queues[name].next_expiry) is not None]
        if not expiries:
            return _CANCEL_LOOK_S
        return max(0.0, min(_CANCEL_LOOK_S, min(expiries) / 1000 - time.time()))

    def _give(self, replies: Replies, count: int) -> None:
        by_name: dict[str, Replies] = {}
        for stream, raw in replies:
            by_name.setdefault(stream.decode().partition(":")[0], []).append((stream, raw))
        for name, found in by_name.items():
            if name not in self._models.queues:
                # The read began before the model left.
                reader = StreamReader(self._host.client, name, self._host.consumer, 0, connection=self._host.connection)
                self._leave_to_others(name, reader.found(found))
                continue
            self._queue(name).give(found, count)
            self._reads.note_used(name)
            self._turns.add(name)

    def _leave_to_others(self, name: str, entries: Sequence[Entry]) -> None:
        """Leave requests for a model that has left to other slots; if no slot serves it, they wait until it is back."""
        if entries and self._left is not None and name in self._models.left:
            self._left.put(name, entries)

    def _failed(self, error: RedisError) -> None:
        """Begin anew once Redis answers: it may have delivered requests in a reply that was lost."""
        self._has_looked = False
        self._turns.clear()
        self._reads.close()
        for queue in self._queues.values():
            queue.start_over()
        if foreign_key(error) and self._leaves_out():
            return
        self._shared.ticks.problem = str(refusal(self._host.client, error) or "")
        self._backoff.failed(error)

    def _leaves_out(self) -> bool:
        """Leave out the models that a key of another program spoils. Return True if there are others than before."""
        with suppress(RedisError):
            is_new = self._foreign.look(self._models.queues)
            for name in self._foreign.names:
                self._reads.remove(name)
            return is_new
        return False


def _left(host: Host, options: JobOptions) -> Left | LeftInRedis:
    """Return what slots leave to each other: in process mode each has a process."""
    return LeftInRedis(host, options) if options.execution_mode == "process" else Left.of(options.redis.name)
