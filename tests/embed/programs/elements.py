"""Job that adds a model's outputs to the numbers 1 to 100, of which every tenth is refused.

Arguments are the model and the folder of the output.
"""

import json
import sys
import time
from pathlib import Path

from pyflink.common import Configuration, Duration, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessFunction, StreamExecutionEnvironment

from cluster_serving import Predictor
from cluster_serving.embed.flink import predict

model, folder = sys.argv[1], Path(sys.argv[2])


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return 1000 * value


class Written(ProcessFunction):
    def process_element(self, value, ctx):
        number, outputs = value
        with (folder / "answered").open("a") as file:
            times = [ctx.timestamp(), ctx.timer_service().current_watermark()]
            print(json.dumps([number, int(outputs["y"][0]), *times]), file=file)


def slowly(number):
    time.sleep(0.01)
    return number


def refused(failed):
    with (folder / "failed").open("a") as file:
        print(f"{failed[0]} {failed[1]}: {failed[2]}", file=file)


configuration = Configuration()
# Watermarks pass between bundles.
configuration.set_string("python.fn-execution.bundle.size", "10")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(1)
env.get_config().set_auto_watermark_interval(1)
numbers = (
    env.from_collection([*range(1, 101)], Types.LONG())
    .map(slowly, Types.LONG())
    .assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(0)).with_timestamp_assigner(Seconds())
    )
)
answered, failed = predict(numbers, Predictor(model), lambda number: {"x": [number] * (4 if number % 10 else 3)})
answered.process(Written())
failed.map(refused)
env.execute("elements")
