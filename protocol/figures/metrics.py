"""Metrics of a job: their definitions, from which the table in the docs is made.

The slots of a job add to hashes in Redis (`connectors.stages.stats`). A field is the name of a metric; behind a colon
follows the value of its label, or the upper bound of a bucket. In the hash of the slots, version of the model and index
of the slot come first. All numbers in Redis are whole: seconds are in millionths, and so are the numbers of handlers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from cluster_serving.protocol.errors import DeadlineExceeded, InferenceFailed, InferenceTimeout, InvalidInput

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

KEPT_S = 3600
"""Seconds for which the figures of a version stay after its last slot has ended."""

ALIVE = "alive"
"""Field of a slot with the time of its last gauges, in milliseconds by the clock of Redis."""

_PREFIX = "cluster_serving_"
_TIMES = tuple(125 << power for power in range(20))
_SIZES = tuple(1 << power for power in range(12))


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric of a job.

    Attributes:
        name: Its fields in Redis begin with it.
        kind: `COUNTER`, `GAUGE` or `HISTOGRAM`.
        unit: "seconds", "bytes" or what is counted.
        text: Meaning, in a sentence.
        label: Name of its label besides those of all metrics; empty for none.
        begins: Values of the label for which a counter begins at 0, as every counter without a label does.
        of_job: The metric is one of the job as a whole, without version and slot.
        bounds: Upper bounds of the buckets of a histogram, as numbers in Redis.
        fields: Fields of these buckets in Redis, and of larger values.
        sum: Field of the sum of all values of a histogram.
    """

    name: str
    kind: str
    unit: str
    text: str
    label: str = ""
    begins: tuple[str, ...] = ()
    of_job: bool = False
    bounds: tuple[int, ...] = ()
    fields: tuple[str, ...] = field(init=False)
    sum: str = field(init=False)

    def __post_init__(self) -> None:
        les = [f"{limit * self.scale:.10g}" for limit in self.bounds] + ["inf"]
        object.__setattr__(self, "fields", tuple(f"{self.name}:{le}" for le in les))
        object.__setattr__(self, "sum", f"{self.name}:sum")

    @property
    def scale(self) -> float:
        """Value of 1 in Redis, in `unit`."""
        return 1e-6 if self.unit in ("seconds", "number") else 1

    @property
    def full_name(self) -> str:
        """Name for Prometheus."""
        return f"{_PREFIX}{self.name}{'_total' if self.kind == COUNTER else ''}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of its labels."""
        return ("serving_job", *(() if self.of_job else ("version", "slot")), *filter(None, [self.label]))

    def samples(self, values: Mapping[str, int]) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield suffix, further labels and value of each sample, from the fields of a slot.

        A counter that has counted nothing is 0: `increase` of Prometheus does not see the first event of a new series.
        """
        if self.kind == HISTOGRAM:
            yield from self._buckets(values)
        elif self.label:
            found = {label: 0 for label in self.begins}
            prefix = f"{self.name}:"
            found |= {name[len(prefix) :]: value for name, value in values.items() if name.startswith(prefix)}
            for label, value in found.items():
                yield "", {self.label: label}, value * self.scale
        elif self.kind == COUNTER or self.name in values:
            yield "", {}, values.get(self.name, 0) * self.scale

    def _buckets(self, values: Mapping[str, int]) -> Iterator[tuple[str, dict[str, str], float]]:
        count = 0
        for name in self.fields:
            count += values.get(name, 0)
            le = name.partition(":")[2]
            yield "_bucket", {"le": "+Inf" if le == "inf" else le}, count
        yield "_sum", {}, values.get(self.sum, 0) * self.scale
        yield "_count", {}, count


def _time(name: str, text: str) -> Metric:
    return Metric(name, HISTOGRAM, "seconds", text, bounds=_TIMES)


RECORDS_IN = Metric("records_in", COUNTER, "records", "Records that the slot has read from the queue.")
REQUESTS_IN = Metric("requests_in", COUNTER, "requests", "Requests that the slot has read, of a record or more.")
ANSWERED = Metric("records_answered", COUNTER, "records", "Records answered with a result.")
FAILED = Metric(
    "records_failed",
    COUNTER,
    "records",
    "Records answered with an error.",
    "code",
    begins=tuple(error.code for error in (InvalidInput, InferenceFailed, InferenceTimeout, DeadlineExceeded)),
)
"""An alert adds up the series of all codes; these are the usual codes."""
CLIENT_REQUESTS = Metric(
    "client_requests", COUNTER, "requests", "Requests by client: those of the busiest, and of the others.", "client"
)
REDELIVERIES = Metric("redeliveries", COUNTER, "requests", "Requests delivered again after the end of a process.")
GIVEN_UP = Metric("requests_given_up", COUNTER, "requests", "Requests that became dead letters.")
RECONNECTS = Metric("reconnects", COUNTER, "attempts", "Attempts at reading or writing that Redis did not answer.")
QUEUE_WAIT = _time("queue_wait_seconds", "Time in the queue of each record; of a batch, that of its oldest one.")
REQUEST = _time("request_seconds", "Time of each record from its arrival in the queue to its answer.")
COMPUTE = _time("batch_compute_seconds", "Time of each batch with the model: preprocess, inference and postprocess.")
PREPROCESS = _time("preprocess_seconds", "Time of each batch for preparing its inputs.")
INFERENCE = _time("inference_seconds", "Time of each batch in the model.")
POSTPROCESS = _time("postprocess_seconds", "Time of each batch for filters and for encoding its answers.")
WRITE = _time("write_seconds", "Time of each batch for writing its answers to Redis.")
BATCH_SIZE = Metric("batch_size", HISTOGRAM, "records", "Records of each batch.", bounds=_SIZES)
CLOSED = Metric("batches_closed", COUNTER, "batches", "Batches by the reason for closing them.", "reason")
GATHERING = _time("gathering_seconds", "Time that the oldest record of each batch waited for it to be closed.")
RECORD_COMPUTE = Metric("record_compute_seconds", COUNTER, "seconds", "As batch_compute_seconds, for each record.")
FAILED_TIME = Metric("failed_record_seconds", COUNTER, "seconds", "As request_seconds, of records that have failed.")
CALLED = Metric("padded_elements", COUNTER, "elements", "Elements that the model got for inputs with padding.")
PADDING = Metric("padding_elements", COUNTER, "elements", "Those of them that were padding.")
WATCHED = Metric(
    "watched_records",
    COUNTER,
    "records",
    "Records of shared calls that were computed again alone, by what came of it.",
    "verdict",
)
WATCH_TIME = Metric("watch_seconds", COUNTER, "seconds", "Time for that: 0.5 % of batch_compute_seconds, or less.")
SHARING_ENDED = Metric("sharing_ended", GAUGE, "", "1 if such a record had another answer alone, else 0.")
LOG_WRITTEN = Metric("payload_log_written", COUNTER, "requests", "Requests that the payload log has.")
LOG_DROPPED = Metric("payload_log_dropped", COUNTER, "requests", "Requests that it lacks: too many, or not taken.")
LOAD_TIME = Metric("model_load_seconds", GAUGE, "seconds", "Time in which the slot loaded its model.")
MODEL_MEMORY = Metric("model_memory_bytes", GAUGE, "bytes", "Growth of the process while it loaded the model.")
PROCESS_MEMORY = Metric("process_memory_bytes", GAUGE, "bytes", "Memory of the process that has the slot.")
CPU_TIME = Metric("cpu_seconds", COUNTER, "seconds", "Time for which threads of the process had a processor.")
CPU_WAIT = Metric("cpu_wait_seconds", COUNTER, "seconds", "Time for which they could have run and had none.")
CPU_STOLEN = Metric("cpu_stolen_seconds", COUNTER, "seconds", "Time that the hypervisor took from the machine.")
REDIS_TRIP = Metric("redis_round_trip_seconds", GAUGE, "seconds", "Time of the latest PING of the slot to Redis.")
DISK_FREE = Metric("disk_free_bytes", GAUGE, "bytes", "Free space of the disk of the slot's temporary files.")
RESTARTS = Metric("slot_restarts", GAUGE, "restarts", "Restarts of the slot since the job was started or changed.")
SLOTS = Metric("slots", GAUGE, "slots", "Slots by version and state.", "state")
QUEUE = Metric("queue_length", GAUGE, "requests", "Requests in the streams, unanswered.", of_job=True)
OLDEST = Metric("oldest_waiting_seconds", GAUGE, "seconds", "Age of the oldest request not read yet.", of_job=True)
DEAD = Metric("dead_letters", GAUGE, "requests", "Dead letters that are kept.", of_job=True)
REFUSED = Metric("model_refused", GAUGE, "", "1 if a new model is not served, else 0.", of_job=True)
REDIS_MEMORY = Metric("redis_memory_bytes", GAUGE, "bytes", "Memory that the Redis of the job uses.", of_job=True)
REDIS_LIMIT = Metric("redis_memory_limit_bytes", GAUGE, "bytes", "Its limit; 0 if there is none.", of_job=True)
REDIS_DISK = Metric("redis_disk_failed", GAUGE, "", "1 if Redis could not write to its disk, else 0.", of_job=True)

METRICS: tuple[Metric, ...] = tuple(
    value for value in vars(sys.modules[__name__]).values() if isinstance(value, Metric)
)
"""All metrics of a job, in this order."""

HANDLER = "handler"
"""Begin of the names of a handler's own metrics, which are followed by their kind."""


@cache
def of_handler(kind: str, name: str) -> Metric:
    """Return a metric of a handler, a counter or a histogram."""
    bounds = tuple(125 << power for power in range(34)) if kind == HISTOGRAM else ()
    return Metric(f"{HANDLER}_{name}", kind, "number", "A metric of the handler.", bounds=bounds)


def table() -> str:
    """Return the table of the docs."""
    rows = [
        f"| `{each.full_name}{{{','.join(each.labels)}}}` | {each.kind} | {each.unit} | {each.text} |"
        for each in METRICS
    ]
    return "\n".join(["| metric | type | unit | meaning |", "|---|---|---|---|", *rows])
