"""The stage of the payload log, which chooses requests and hands them to a thread."""

import logging
import time
from dataclasses import dataclass

import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import AnsweredBatch
from cluster_serving.connectors.slot.backlog import LIMIT_BYTES, Backlog
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.stage import AnswerStage
from cluster_serving.connectors.stages.payload_log.places import write
from cluster_serving.connectors.stages.payload_log.table import Logged, table_of
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.metrics import LOG_DROPPED, LOG_WRITTEN
from cluster_serving.protocol.generations import is_in_trial

_INTERVAL_S = 1.0
_LONGEST_S = 10.0
_ENOUGH_BYTES = LIMIT_BYTES // 4

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Keys:
    """Keys of the payload log.

    Attributes:
        payload_log_sample: Share of the requests that are written, 0 to 1.
        payload_log_to: Folder or address of the log.
        payload_log_without: Patterns of the columns that the log leaves out.
    """

    payload_log_sample: float = 0.0
    payload_log_to: str = "payload-log"
    payload_log_without: tuple[str, ...] = ()


class PayloadLog(Backlog[Logged], AnswerStage):
    """Writes a share of the requests of a slot; what the thread or the place cannot take is dropped and counted."""

    def __init__(self, options: RedisOptions, counts: Counts) -> None:
        super().__init__("payload log", _INTERVAL_S)
        self._version, self._keys = options.version, options.of_stage(Keys)
        self._counts = counts
        self._name = f"{options.job}-{options.version}-{counts.slot}"
        self._count = 0

    def answered(self, batch: AnsweredBatch, write_us: int) -> None:
        """Keep the share of a batch that is to be written."""
        share, latency_us = 100 * self._keys.payload_log_sample, batch.wait_us + batch.inference_us + write_us
        for number, answer in enumerate(batch.answers, self._count):
            if is_in_trial(number, share):
                item = Logged(answer.entry, answer.fields, latency_us, time.monotonic())
                if item.size > LIMIT_BYTES or not self.put([item]):
                    self._counts.add(LOG_DROPPED)
        self._count += len(batch.answers)

    def _work(self, items: list[Logged]) -> list[Logged]:
        """Write the requests once they are many, or the first of them is old."""
        is_due = time.monotonic() >= items[0].at + _LONGEST_S or sum(item.size for item in items) >= _ENOUGH_BYTES
        if not (is_due or self._closed.is_set()):
            return items
        try:
            table = table_of(items, self._version, self._keys.payload_log_without)
            write(table, self._keys.payload_log_to, self._name)
        except Exception as error:
            # Each store has errors of its own.
            self._counts.add(LOG_DROPPED, len(items))
            log.warning("%d requests are missing in %s: %s", len(items), self._keys.payload_log_to, error)
        else:
            self._counts.add(LOG_WRITTEN, len(items))
        return []


def answers(client: redis.Redis, options: RedisOptions, clock: RedisClock, counts: Counts) -> AnswerStage:
    """Return the stage of a sink; without a payload log, and in a shadow, it does nothing."""
    if options.of_stage(Keys).payload_log_sample and not options.shadow:
        return PayloadLog(options, counts)
    return AnswerStage(client, options, clock, counts)
