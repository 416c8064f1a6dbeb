"""A batch job: the row groups of Parquet files, scored in parallel.

    flink run -py parquet.py MODEL OUTPUT INPUT...

Columns have the names of the model's inputs. OUTPUT is a folder that is there.
"""

import os
import sys
from pathlib import Path

import pyarrow.parquet as pq
from pyflink.common import Types
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

from cluster_serving import Predictor
from cluster_serving.embed.tables import predict_table

model, output, *inputs = sys.argv[1:]
predictor = Predictor(model)
groups = [(file, group) for file in inputs for group in range(pq.read_metadata(file).num_row_groups)]


def score(unit):
    file, group = unit
    path = Path(output, f"{Path(file).stem}.{group:05}.parquet")
    table = pq.ParquetFile(file).read_row_group(group)
    pq.write_table(predict_table(predictor, table), f"{path}.part")
    os.replace(f"{path}.part", path)
    return str(path)


env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
env.from_collection(groups).rebalance().map(score, Types.STRING()).print()
env.execute("parquet")
