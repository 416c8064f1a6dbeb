"""Gathering: the requests of a slot are decoded, and become batches (`job.batcher`)."""

import time
from collections.abc import Hashable, Iterator, Sequence

from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.job.batcher import Batcher
from cluster_serving.job.options import BatchOptions
from cluster_serving.job.request import GatheredBatch, Request, with_errors
from cluster_serving.protocol import columns
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import DeadlineExceeded, ServingError
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.metrics import CLOSED, GATHERING
from cluster_serving.protocol.signature import any_size

# Flink cancels, and updates metrics, when the window returns.
_LONGEST_STAY = 0.2
_TIMEOUT = 0.1


class Gathering:
    """Gatherer of batches of one signature.

    Requests are held in memory, not in Flink state: until they are answered they are pending in Redis, which delivers
    them again after a failure. Requests of a client whose requests make batches fail are batched apart.

    Args:
        options: Size and wait of batches.
        counts: Counts of the slot; batches are counted there.
        any_size: Requests that only differ in the sizes of their inputs share a batch (`padding`).
        lingers: After a batch, wait here for the next requests. Flink's way from the source takes longer than all other
            work on a small request. It needs a thread of its own: that of thread mode.

    Attributes:
        flow: Flow control that the requests come through; None if their source runs in another process.
    """

    def __init__(self, options: BatchOptions, counts: Counts, any_size: bool = False, lingers: bool = False) -> None:
        self._greedy = options.greedy_batching
        self._counts = counts
        self._any_size = any_size
        self._lingers = lingers and options.greedy_batching
        self._batcher: Batcher[Request] = Batcher(options.max_batch_size, options.timeout_ms, self._note_closed)
        self.flow: SlotFlowControl | None = None

    def take(self, entries: Sequence[Entry] | None, more: bool) -> Iterator[GatheredBatch]:
        """Take the requests of one read, and those that come while this slot lingers; yield batches.

        Args:
            entries: The requests; None if they are to be taken from the flow control.
            more: True if further requests have been read and follow.
        """
        flow = self.flow
        if flow is None:
            yield from self._gather(entries or (), more)
            return
        entries = flow.take() if entries is None else entries
        yield from self._gather(entries, flow.arrive(len(entries)) or more)
        yield from self._linger(flow)
        flow.give_back()

    def expire(self, now_ms: float) -> Iterator[GatheredBatch]:
        """Yield the batches that have waited long enough."""
        for batch in self._batcher.expire(now_ms):
            yield from self._ready(batch)

    def next_expiry(self) -> float | None:
        """Return the time, in milliseconds since the epoch, at which `expire` has a batch; None for no batch."""
        return self._batcher.next_expiry()

    def _linger(self, flow: SlotFlowControl) -> Iterator[GatheredBatch]:
        """Take the next requests without Flink, unless they come so late that Flink has to have its turn."""
        end = time.monotonic() + _LONGEST_STAY
        # A timer would be late.
        while self._lingers and self._batcher.next_expiry() is None and (left := end - time.monotonic()) > 0:
            entries = flow.wait(min(left, _TIMEOUT))
            if entries is None:
                return
            yield from self._gather(entries, flow.arrive(len(entries)))

    def _gather(self, entries: Sequence[Entry], more: bool) -> Iterator[GatheredBatch]:
        apart = self.flow.apart if self.flow else None
        for entry in entries:
            try:
                signature, inputs = entry.decode()
                request = Request.of(entry, inputs)
                if request.rows:
                    signature = columns.of_record(signature, request.rows)
            except ServingError as error:
                yield self._batch([Request(entry, {}, error)])
                continue
            if entry.one_by_one:
                yield from self._one_by_one(request)
                continue
            if self._any_size:
                signature = any_size(signature)
            key = signature, entry.client if apart and apart.sends_apart(entry.client, entry.record_count) else None
            yield from self._add(key, request)
        if not more and self._greedy:
            for batch in self._batcher.flush():
                yield from self._ready(batch)

    def _one_by_one(self, request: Request) -> Iterator[GatheredBatch]:
        """Yield the records of an entry, each as a batch."""
        late, given_up = self._expired([request]).get(request.entry.place), request.entry.given_up
        for single in request.each():
            yield self._batch([single._replace(error=late or given_up.get(single.part))])

    def _add(self, key: Hashable, request: Request) -> Iterator[GatheredBatch]:
        """Add a request to the batch of its key; one that is larger than the room there is cut."""
        now = time.time() * 1000
        rest: Request | None = request
        while rest is not None:
            request, rest = rest.cut(room) if rest.size > (room := self._batcher.room(key)) else (rest, None)
            full = self._batcher.add(key, request, now, request.size)
            if full is not None:
                yield from self._ready(full, key)

    def _ready(self, batch: list[Request], key: Hashable = None) -> Iterator[GatheredBatch]:
        """Yield the requests of a batch that have expired, and the others, which can be computed.

        With its key, the batch was full: then the others wait for requests that take the free places.
        """
        errors = self._expired(batch)
        if not errors:
            yield self._batch(batch)
            return
        yield self._batch([request for request in with_errors(batch, errors) if request.error])
        others = [request for request in batch if request.entry.place not in errors]
        if key is None and others:
            yield self._batch(others)
            return
        for request in others:
            self._batcher.add(key, request, time.time() * 1000, request.size)

    def _batch(self, requests: Sequence[Request]) -> GatheredBatch:
        return GatheredBatch(requests, self.flow)

    def _expired(self, requests: Sequence[Request]) -> dict[tuple[str, bytes], DeadlineExceeded]:
        if self.flow is None or self.flow.deadlines is None:
            return {}
        return self.flow.deadlines.expired(request.entry for request in requests)

    def _note_closed(self, reason: str, since_ms: float) -> None:
        waited_us = max(0, int(1000 * (1000 * time.time() - since_ms)))
        self._counts.observe((GATHERING, waited_us, 1), also=((f"{CLOSED.name}:{reason}", 1),))
