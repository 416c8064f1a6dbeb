"""A DataStream job: lines of JSON with the pixels of a digit each, and the digit that a model sees in them.

    flink run -py stream.py MODEL INPUT OUTPUT

INPUT has lines such as {"id": 1, "pixels": [0.0, ...]}.
"""

import json
import sys

from pyflink.common import Encoder, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat

from cluster_serving import Predictor
from cluster_serving.embed.flink import predict

model, source, sink = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment()
files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), source).build()
lines = env.from_source(files, WatermarkStrategy.no_watermarks(), "lines")

answered, failed = predict(lines.map(json.loads), Predictor(model), lambda element: {"x": element["pixels"]})


def answer(pair):
    element, outputs = pair
    return json.dumps({"id": element["id"], "digit": int(outputs["probabilities"].argmax())})


def problem(failure):
    element, code, message = failure
    return json.dumps({"id": element["id"], "error": f"{code}: {message}"})


texts = answered.map(answer, Types.STRING()).union(failed.map(problem, Types.STRING()))
texts.sink_to(FileSink.for_row_format(sink, Encoder.simple_string_encoder()).build())
env.execute("digits")
