"""A slot that reads, for stages that a test calls without Flink."""

from cluster_serving.connectors.flow_control import SlotFlowControl
from cluster_serving.connectors.generation import GenerationView
from cluster_serving.connectors.slot import Slot
from cluster_serving.connectors.stream import StreamReader
from cluster_serving.protocol.keys import JobKeys
from tests.support.flink_context import Context


def make(db, options, index=0):
    """Return the slot of a job on a Redis."""
    reader = StreamReader(db, options.job, JobKeys(options.job).consumer(options.generation, index), 60_000)
    return Slot(db, options, index, reader, GenerationView(db, options), SlotFlowControl(64), 32, True, Context())
