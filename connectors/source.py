"""Redis Streams source: a JVM tick source, and a Python function that reads once per tick.

PyFlink has no source API for Python. Each tick causes one bounded read; between ticks Flink handles cancellation,
barriers and metrics. An endless loop in Python would starve them.
"""

import math
import time
from collections.abc import Iterator, Sequence

from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import DataStream, FlatMapFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from redis.exceptions import RedisError

from cluster_serving.connectors.answer import dead_letter
from cluster_serving.connectors.attempts import Attempts
from cluster_serving.connectors.entry_batch import EntryBatch, by_size
from cluster_serving.connectors.flow_control import SlotFlowControl
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.payloads import Payloads
from cluster_serving.connectors.redis import Backoff, connect
from cluster_serving.connectors.runtime import SelfClosing, count_records_out, subtask_count, subtask_index
from cluster_serving.connectors.slot_keys import SlotKeys
from cluster_serving.connectors.stream import StreamReader
from cluster_serving.connectors.ticks import Ticks
from cluster_serving.connectors.worker import record_end
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import PoisonRequest

NAME = "Redis Streams source"

_BLOCK_MS = 100
_LONGEST_TICK = 0.2
_BATCH_BYTES = 4 << 20
# Slots share the waiting requests if the model takes longer than this for each: one slot that takes all would leave
# others idle. With a faster model, one large batch costs less than several small ones.
_SHARED_SECONDS = 0.001
# Attempts that Flink has ended do not count, unless they are many: a request on which the model hangs would otherwise
# be tried after each restart for ever.
_MOST_STOPS = 10


class RedisStreamsSource(SelfClosing, FlatMapFunction):
    """Reader of requests, which are emitted as serialized entry batches.

    Args:
        options: Redis and job that requests come from; consumers are named `<jobName>-<subtask>`.
        read_size: Most entries of one read.
        slot_keys: Keys that lead from a source subtask to the window subtask of the same index.
        greedy: A batch is computed as soon as no more requests are on their way. Requests that come while the model is
            busy are then read at once, when it is free.
        process_mode: Flink opens the operators behind this source at their first record, so an empty batch is sent
            first. It passes records on only at the end of a tick, so each tick reads once.
    """

    def __init__(
        self, options: RedisOptions, read_size: int, slot_keys: SlotKeys, greedy: bool, process_mode: bool
    ) -> None:
        self._options = options
        self._read_size = read_size
        self._slot_keys = slot_keys
        self._greedy = greedy
        self._process_mode = process_mode

    def open(self, runtime_context: RuntimeContext) -> None:
        """Connect; nothing is read yet."""
        end = record_end() if self._process_mode else ""
        index = subtask_index(runtime_context)
        self._parallelism = subtask_count(runtime_context)
        self._slot_key = self._slot_keys.key_of(index, self._parallelism)
        # Two batches: one is in the model while the next is read. More would be kept from idle slots.
        self._flow = SlotFlowControl(2 * self._read_size, job=self._options.job)
        self._ticks = Ticks.of(self._options.job, index)
        self._client = connect(self._options)
        self.close_with(self._client.close)
        consumer = f"{self._options.job}-{index}"
        self._reader = StreamReader(
            self._client,
            self._options.job,
            consumer,
            self._options.claim_idle_time_s * 1000,
        )
        self._payloads = Payloads(self._client, self._options, sweeps=index == 0)
        self._attempts = Attempts(self._client, self._options.job, end)
        self._tried: Entry | None = None
        metrics = runtime_context.get_metrics_group()
        self._requests = metrics.counter("requests")
        self._dead_letters = metrics.counter("deadLetters")
        self._count_records_out = count_records_out(runtime_context)
        self._backoff = Backoff(f"{NAME} {consumer}", metrics.counter("reconnects").inc)
        self._held: list[Entry] = []
        self._ahead = not self._greedy
        self._latest_share = 1
        self._sends_empty = self._process_mode

    def flat_map(self, value: int) -> Iterator[bytes]:
        """Do one bounded read; `value` is the number of the tick and is not used."""
        self._ticks.note()
        if self._sends_empty:
            self._sends_empty = False
            yield self._batch([], more=False)
        deadline = time.monotonic() + (0 if self._process_mode else _LONGEST_TICK)
        entries, self._held = self._held, []
        entries = entries or self._read(_BLOCK_MS)
        while entries:
            self._flow.announce(len(entries))
            # Read ahead, so that the last batch of this read says correctly whether more requests follow.
            following = self._read(None) if len(entries) >= self._read_size else []
            runs = [entries] if self._flow.attached else list(by_size(entries, _BATCH_BYTES))
            for run in runs:
                yield self._batch(run, more=bool(following) or run is not runs[-1])
            self._requests.inc(len(entries))
            self._count_records_out(len(entries) - len(runs))
            entries = following
            if time.monotonic() >= deadline:
                self._held = entries
                return

    def _batch(self, entries: Sequence[Entry], more: bool) -> bytes:
        if not self._flow.attached:
            return EntryBatch(self._slot_key, more, self._flow.id, entries).to_bytes()
        self._flow.hand_over(entries)
        return EntryBatch(self._slot_key, more, self._flow.id, None).to_bytes()

    def _read(self, block_ms: int | None) -> list[Entry]:
        patience = 0 if block_ms is None else _BLOCK_MS / 1000
        try:
            entries = self._recover(patience) if self._reader.recovering else self._read_new(patience, block_ms)
        except RedisError as error:
            # Redis may have delivered entries in a reply that was lost.
            self._reader.start_over()
            self._backoff.failed(error)
            return []
        self._backoff.succeeded()
        return entries

    def _read_new(self, patience: float, block_ms: int | None) -> list[Entry]:
        if self._parallelism > 1:
            if self._flow.take_back():
                self._flow.wait_idle(patience)
                self._reader.heartbeat()
                return []
            if surplus := self._flow.surplus.take(self._read_size):
                return surplus
        room = self._flow.capacity(patience, self._ahead)
        if room and self._parallelism > 1 and self._flow.seconds_per_request > _SHARED_SECONDS:
            room = min(room, self._share(patience))
        if not room:
            self._reader.heartbeat()
            return []
        self._payloads.sweep_if_due()
        entries = self._reader.read(min(room, self._read_size), block_ms)
        # After a full read more requests are waiting, so that reading ahead makes no batch smaller.
        self._ahead = not self._greedy or len(entries) >= self._read_size
        return [loaded for entry in entries if (loaded := self._payloads.load(entry))]

    def _share(self, patience: float) -> int:
        """Return how many more of the unanswered requests this slot may read, as one of several."""
        waiting = self._reader.length()
        share = math.ceil(waiting / self._parallelism) - self._flow.unanswered
        if share > 0:
            self._latest_share = share
        elif waiting:
            self._flow.wait_idle(patience)
            return 0
        # If no request waits, the next ones are probably as many as the last time.
        return self._latest_share

    def _recover(self, patience: float) -> list[Entry]:
        """Read the next request that a crash or stop interrupted, once the previous one is answered."""
        recovered = self._reader.recover(patience) if self._flow.wait_idle(patience) else None
        if self._tried is not None and (recovered or not self._reader.recovering):
            self._attempts.forget(self._tried)
            self._tried = None
        if recovered is None:
            self._reader.heartbeat()
            return []
        entry, deliveries = self._payloads.load(recovered[0]), recovered[1]
        if entry is None:
            return []
        last, attempts, most = self._attempts.last(entry), deliveries - 1, self._options.max_deliveries
        if attempts < _MOST_STOPS * most and attempts - last.stops < most and not last.crashed:
            self._attempts.note([entry])
            self._tried = entry
            return [entry]
        error = PoisonRequest(
            f"given up after {attempts} attempts: each time, the process that computed this request died or was "
            f"stopped{last}"
        )
        dead_letter(self._client, self._options.job, self._options.result_ttl_s, entry, error, last.traceback)
        self._attempts.forget(entry)
        self._dead_letters.inc()
        return []


def from_redis(env: StreamExecutionEnvironment, source: RedisStreamsSource) -> DataStream:
    """Return the stream of serialized entry batches that `source` reads, with one reader per slot."""
    ticks = env.from_source(NumberSequenceSource(0, 2**62), WatermarkStrategy.no_watermarks(), "Tick")
    return ticks.flat_map(source, output_type=Types.PRIMITIVE_ARRAY(Types.BYTE())).name(NAME)
