"""Redis Streams source: a JVM tick source followed by a Python function that reads once per tick.

PyFlink has no source API for Python. Each tick causes one bounded read, so that cancellation, barriers and metrics get
their turn between ticks; an endless loop here would starve them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import DataStream, FlatMapFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from redis.exceptions import RedisError

from cluster_serving.connectors.attempts import Attempts
from cluster_serving.connectors.dead_letter import bury
from cluster_serving.connectors.entry_batch import Chunk, by_size
from cluster_serving.connectors.flow_control import open_lane
from cluster_serving.connectors.limits import publish_limits
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.payloads import Payloads
from cluster_serving.connectors.reconnect import Backoff, connect
from cluster_serving.connectors.runtime import closing, nothing, records_out, subtask_index
from cluster_serving.connectors.stream import StreamReader
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import PoisonRequest

NAME = "Redis Streams source"

_BLOCK_MS = 100
_LONGEST_TICK = 0.2
_CHUNK_BYTES = 4 << 20
# Of a model that takes this long for a request, slots share what is waiting: one that took all would leave others idle.
# With a faster one, a large batch costs less than several small ones.
_SHARED_SECONDS = 0.001


class RedisStreamsSource(FlatMapFunction):
    """Reads requests on every tick and hands them over as serialized `Chunk`s.

    Args:
        options: Where Redis is.
        stream: `jobName`, whose streams are read; consumers are named `<stream>-<subtask>`.
        read_size: Most entries of one read.
        lane_keys: Flink key per source subtask that leads to the window subtask of the same index.
        greedy: A batch is computed as soon as nothing more is on its way, so what comes while the model is busy had
            better be read at once.
        process_mode: Flink opens the operators behind this source at their first record, so send one; and it hands
            records on only when a tick is over, so read once per tick.
    """

    def __init__(
        self, options: RedisOptions, stream: str, read_size: int, lane_keys: list[int], greedy: bool, process_mode: bool
    ) -> None:
        self._options = options
        self._stream = stream
        self._read_size = read_size
        self._lane_keys = lane_keys
        self._greedy = greedy
        self._process_mode = process_mode
        self._greets = process_mode
        self._close: Callable[[], object] = nothing

    def open(self, runtime_context: RuntimeContext) -> None:
        """Connect; nothing is read yet."""
        index = subtask_index(runtime_context)
        self._lane_key = self._lane_keys[index]
        # Two batches: one is in the model while the next is read; more would be kept from idle slots.
        self._lane = open_lane(2 * self._read_size)
        self._client = connect(self._options)
        self._close = closing(self, self._client.close)
        consumer = f"{self._stream}-{index}"
        self._reader = StreamReader(
            self._client,
            self._stream,
            consumer,
            self._options.claim_idle_ms,
            on_loss=partial(publish_limits, self._client, self._stream, self._options),
        )
        self._payloads = Payloads(self._client, self._stream, self._options, sweeps=index == 0)
        self._attempts = Attempts(self._client, self._stream)
        self._tried: Entry | None = None
        metrics = runtime_context.get_metrics_group()
        self._requests = metrics.counter("requests")
        self._dead_letters = metrics.counter("deadLetters")
        self._records_out = records_out(runtime_context)
        self._backoff = Backoff(f"{NAME} {consumer}", metrics.counter("reconnects").inc)
        self._held: list[Entry] = []
        self._ahead = not self._greedy
        self._latest_share = 1

    def close(self) -> None:
        """Disconnect."""
        self._close()

    def flat_map(self, value: int) -> Iterator[bytes]:
        """Do one bounded read; `value` is the tick's number and means nothing."""
        if self._greets:
            self._greets = False
            yield self._chunk([], more=False)
        deadline = time.monotonic() + (0 if self._process_mode else _LONGEST_TICK)
        entries, self._held = self._held, []
        entries = entries or self._read(_BLOCK_MS)
        while entries:
            self._lane.announce(len(entries))
            # Look ahead, so that the last chunk of this read says truly whether more requests are waiting.
            following = self._read(None) if len(entries) >= self._read_size else []
            runs = [entries] if self._lane.attached else list(by_size(entries, _CHUNK_BYTES))
            for run in runs:
                yield self._chunk(run, more=bool(following) or run is not runs[-1])
            self._requests.inc(len(entries))
            self._records_out.inc(len(entries) - len(runs))
            entries = following
            if time.monotonic() >= deadline:
                self._held = entries
                return

    def _chunk(self, entries: Sequence[Entry], more: bool) -> bytes:
        if not self._lane.attached:
            return Chunk(self._lane_key, more, self._lane.id, entries).to_bytes()
        self._lane.hand_over(entries)
        return Chunk(self._lane_key, more, self._lane.id, None).to_bytes()

    def _read(self, block_ms: int | None) -> list[Entry]:
        patience = 0 if block_ms is None else _BLOCK_MS / 1000
        try:
            entries = self._recover(patience) if self._reader.recovering else self._read_new(patience, block_ms)
        except RedisError as error:
            # Redis may have handed out entries in an answer that did not arrive.
            self._reader.start_over()
            self._backoff.failed(error)
            return []
        self._backoff.succeeded()
        return entries

    def _read_new(self, patience: float, block_ms: int | None) -> list[Entry]:
        room = self._lane.capacity(patience, self._ahead)
        if room and len(self._lane_keys) > 1 and self._lane.seconds_per_request > _SHARED_SECONDS:
            room = min(room, self._share(patience))
        if not room:
            self._reader.heartbeat()
            return []
        self._payloads.sweep_if_due()
        found = self._reader.read(min(room, self._read_size), block_ms)
        # A full read says that more are waiting, so that a read ahead costs no batch its size.
        self._ahead = not self._greedy or len(found) >= self._read_size
        return [loaded for entry in found if (loaded := self._payloads.load(entry))]

    def _share(self, patience: float) -> int:
        """How many more of the unanswered requests are this slot's, as one of several."""
        waiting = self._reader.length()
        share = math.ceil(waiting / len(self._lane_keys)) - self._lane.unanswered
        if share > 0:
            self._latest_share = share
        elif waiting:
            self._lane.wait_idle(patience)
            return 0
        # If nothing waits, what comes next is probably as much as the last time.
        return self._latest_share

    def _recover(self, patience: float) -> list[Entry]:
        """The next request that a crash or stop interrupted, once the one before it is answered."""
        found = self._reader.recover(patience) if self._lane.wait_idle(patience) else None
        if self._tried is not None and (found or not self._reader.recovering):
            self._attempts.forget(self._tried)
            self._tried = None
        if found is None:
            self._reader.heartbeat()
            return []
        entry, deliveries = self._payloads.load(found[0]), found[1]
        if entry is None:
            return []
        if deliveries <= self._options.max_deliveries:
            self._attempts.begin(entry)
            self._tried = entry
            return [entry]
        last = self._attempts.last(entry)
        error = PoisonRequest(
            f"given up after {deliveries - 1} attempts: each time, the process that computed this request died or was "
            f"stopped{last}"
        )
        bury(self._client, self._stream, self._options.result_ttl_s, entry, error, last.traceback)
        self._attempts.forget(entry)
        self._dead_letters.inc()
        return []


def from_redis(env: StreamExecutionEnvironment, source: RedisStreamsSource) -> DataStream:
    """Stream of serialized `Chunk`s read by `source`, one reader per slot."""
    ticks = env.from_source(NumberSequenceSource(0, 2**62), WatermarkStrategy.no_watermarks(), "Tick")
    return ticks.flat_map(source, output_type=Types.PRIMITIVE_ARRAY(Types.BYTE())).name(NAME)
