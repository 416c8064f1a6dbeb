"""The data path, top to bottom: source, key, window, inference, sink."""

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.java_gateway import get_gateway

from cluster_serving.connectors.flink.slot_keys import SlotKeys, slot_key
from cluster_serving.job.deferred import Deferred
from cluster_serving.job.options import GENERATION, MARK, NAME, JobOptions

_OPERATORS = "cluster_serving.job.operators"

_MAX_PARALLELISM = 1 << 12


def build(env: StreamExecutionEnvironment, options: JobOptions, with_jar: bool = False) -> None:
    """Build the job on an environment; `with_jar` ships the jar that `flink run` adds, 42 MB for each TaskManager."""
    env.configure(_configuration(options, with_jar))
    env.set_parallelism(options.model_parallelism)
    env.set_max_parallelism(_MAX_PARALLELISM)
    text = options.to_json()
    source = Deferred(f"{_OPERATORS}:source", text, _slot_keys(options.model_parallelism))

    ticks = env.from_source(NumberSequenceSource(0, 2**62), WatermarkStrategy.no_watermarks(), "Tick")
    requests = ticks.flat_map(source, output_type=Types.PRIMITIVE_ARRAY(Types.BYTE())).name("Redis Streams source")
    slots = _key_in_place(requests)
    # PyFlink chains the next three into one operator, so batches pass between them as Python objects, not as bytes.
    batches = slots.process(Deferred(f"{_OPERATORS}:window", text), output_type=Types.PICKLED_BYTE_ARRAY())
    batches.name("Batching window")
    # In one thread with the source, neither could work while the other waits.
    batches.start_new_chain()
    answers = batches.flat_map(Deferred(f"{_OPERATORS}:inference", text), output_type=Types.PICKLED_BYTE_ARRAY())
    answers.name("Inference")
    answers.flat_map(Deferred(f"{_OPERATORS}:sink", text), output_type=Types.INT()).name("Redis hash sink")

    # PyFlink adds a map for the key, which the Flink UI would show by an internal name.
    slots._j_data_stream.getTransformation().getInputs().get(0).setName("key_by")


def _key_in_place(requests: DataStream) -> KeyedStream:
    """Return the keyed stream of the slots, whose keys lead to the subtask that they come from (`SlotKeys`).

    `key_by` alone would connect each source with each window, so that the end of one slot restarts all of them.
    """
    keyed = requests.key_by(slot_key, key_type=Types.INT())
    jvm = get_gateway().jvm
    api = jvm.org.apache.flink.streaming.api.datastream
    mapped = api.DataStream(
        requests._j_data_stream.getExecutionEnvironment(), keyed._j_data_stream.getTransformation().getInputs().get(0)
    )
    in_place = api.DataStreamUtils.reinterpretAsKeyedStream(
        mapped, jvm.KeyByKeySelector(), Types.ROW([Types.INT()]).get_java_type_info()
    )
    return KeyedStream(in_place, keyed._original_data_type_info, requests)


def _configuration(options: JobOptions, with_jar: bool) -> Configuration:
    settings = {
        "pipeline.name": options.flink_name,
        "pipeline.global-job-parameters": f"{MARK}:{options.submission},{NAME}:{options.redis.job},"
        f"{GENERATION}:{options.redis.generation}",
        # Where the jar is in the lib/ of the cluster, `flink run` need not add it.
        **({} if with_jar else {"pipeline.jars": ""}),
        "python.execution-mode": options.execution_mode,
        # Each record leaves its operator at once. The defaults wait for 1000 records or 1 s, and for 100 ms per hop.
        # With bundles of one record, Flink's timers of bundles have nothing to do, and would wake two threads a slot.
        "python.fn-execution.bundle.size": "1",
        "python.fn-execution.bundle.time": str(2**31 - 1),
        "execution.buffer-timeout.interval": "0 ms",
        # Nothing here has event time; the timer would wake each source five times a second.
        "pipeline.auto-watermark-interval": "0 ms",
        "python.operator-chaining.enabled": "true",
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    return configuration


def _slot_keys(parallelism: int) -> SlotKeys:
    """Return keys for the subtasks of a job of this parallelism, or of any lower one."""
    jvm = get_gateway().jvm.org.apache.flink
    # Subtasks have ranges of key groups. Ranges of half the size lie within those of any lower parallelism.
    ranges = min(2 * parallelism, _MAX_PARALLELISM)
    groups: list[int] = []
    reached: set[int] = set()
    while len(reached) < ranges:
        # PyFlink hashes a row that holds the key, not the key itself.
        row = jvm.types.Row(1)
        row.setField(0, len(groups))
        groups.append(jvm.runtime.state.KeyGroupRangeAssignment.assignToKeyGroup(row, _MAX_PARALLELISM))
        reached.add(groups[-1] * ranges // _MAX_PARALLELISM)
    return SlotKeys(tuple(groups), _MAX_PARALLELISM)
