"""Job that adds a model's outputs to numbers, in about ten seconds, and writes them to files.

Arguments are the model, the folder of checkpoints, and the folder of the output.
"""

import sys
import time

from pyflink.common import Configuration, Encoder, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, OutputFileConfig, RollingPolicy
from pyflink.datastream.connectors.number_seq import NumberSequenceSource

from cluster_serving import Predictor
from cluster_serving.embed.flink import predict

model, checkpoints, output = sys.argv[1:]
COUNT = 10_000
SETTINGS = {
    "execution.checkpointing.interval": "200 ms",
    "execution.checkpointing.dir": f"file://{checkpoints}",
}


def inputs(number):
    time.sleep(0.001)
    return {"x": [number % 100] * 4}


configuration = Configuration()
for key, value in SETTINGS.items():
    configuration.set_string(key, value)
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(1)
numbers = env.from_source(NumberSequenceSource(1, COUNT), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
answered, _ = predict(numbers, Predictor(model), inputs, timeout_ms=50)
sink = (
    FileSink.for_row_format(output, Encoder.simple_string_encoder())
    .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    .with_output_file_config(OutputFileConfig.builder().with_part_prefix("part").build())
    .build()
)
answered.map(lambda pair: f"{pair[0]} {int(pair[1]['y'][0])}", Types.STRING()).sink_to(sink)
env.execute("exactly once")
