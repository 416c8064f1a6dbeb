"""The functions of the data path, each made from the options of its job where it runs."""

from cluster_serving.connectors.flink.slot_keys import SlotKeys
from cluster_serving.connectors.sink import RedisHashSink
from cluster_serving.connectors.slot.peers import Peers
from cluster_serving.connectors.slot.reading import ReadingOptions
from cluster_serving.connectors.slot.worker import record_end
from cluster_serving.connectors.source import RedisStreamsSource
from cluster_serving.connectors.stages import shadow, tensorboard, traces
from cluster_serving.connectors.stages.clients import Clients
from cluster_serving.connectors.stages.expiry import Expiry
from cluster_serving.connectors.stages.failures import Failures
from cluster_serving.connectors.stages.payload_log import stage as payload_log
from cluster_serving.connectors.stages.payloads import Payloads
from cluster_serving.connectors.stages.routing import Routing
from cluster_serving.connectors.stages.shadow import Mirror
from cluster_serving.connectors.stages.stats import Counting, Stats
from cluster_serving.job.culprits.search import CulpritSearch
from cluster_serving.job.hosting.functions import HostingInference, HostingSink, HostingWindow, TurnSource
from cluster_serving.job.inference import Inference
from cluster_serving.job.loading.figures import Figures
from cluster_serving.job.loading.pieces import Pieces
from cluster_serving.job.loading.rights import Rights
from cluster_serving.job.loading.secret import Secret
from cluster_serving.job.options import JobOptions
from cluster_serving.job.window import BatchingWindow

__all__ = ["ANSWERING", "LOADING", "READING", "inference", "sink", "source", "window"]

READING = (Clients, Counting, Routing, Expiry, Payloads, Mirror)
"""Stages around the reads of a slot, in their order."""

ANSWERING = (Failures, shadow.answers, payload_log.answers, Stats, traces.answers, tensorboard.answers)
"""Stages around the writes of its answers, in their order. At the end `Stats` writes what those before it counted."""

LOADING = (Rights, Secret, Figures, Pieces)
"""Parts around the load of the model of a slot, in their order."""


def source(text: str, slot_keys: SlotKeys) -> RedisStreamsSource | TurnSource:
    """Return the source of a job, whose options are the JSON `text`."""
    options = JobOptions.from_json(text)
    if options.hosted:
        return TurnSource(options, slot_keys)
    process_mode = options.execution_mode == "process"
    reading = ReadingOptions(
        options.redis,
        options.batch.max_batch_size,
        greedy=options.batch.greedy_batching,
        process_mode=process_mode,
        deadline_ms=options.request_deadline_ms,
        slots=options.model_parallelism,
        stages=READING,
        watch=Peers,
    )
    return RedisStreamsSource(reading, slot_keys, record_end if process_mode else None)


def window(text: str) -> BatchingWindow | HostingWindow:
    """Return the window, which gathers requests."""
    options = JobOptions.from_json(text)
    if options.hosted:
        return HostingWindow(options, READING)
    any_size, in_threads = bool(options.model.padding), options.execution_mode == "thread"
    return BatchingWindow(options.batch, any_size=any_size, lingers=in_threads, generation=options.redis.name)


def inference(text: str) -> Inference | HostingInference:
    """Return the function around the model, or around several."""
    options = JobOptions.from_json(text)
    if options.hosted:
        return HostingInference(options)
    return Inference(
        options, LOADING, record_end if options.execution_mode == "process" else None, search=CulpritSearch
    )


def sink(text: str) -> RedisHashSink | HostingSink:
    """Return the sink of the answers."""
    options = JobOptions.from_json(text)
    return HostingSink(options, ANSWERING) if options.hosted else RedisHashSink(options.redis, ANSWERING)
