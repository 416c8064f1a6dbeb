"""A model over the rows of a Parquet file, or over a folder of images, as one writes it without Cluster Serving.

Usage: python files.py WAY SOURCE TARGET     writes Parquet. The way is bare (a loop), ray_data or daft
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import engine
import numpy as np
import pyarrow as pa

BATCH = 32 if engine.KIND == "jpeg" else 8192


def compute(model: engine.Engine, values: pa.Array) -> pa.FixedSizeListArray:
    """Compute a column of images as bytes, or of rows."""
    if engine.KIND == "jpeg":
        y = model.infer(np.stack([engine.decode(raw) for raw in values.to_pylist()]))
    else:
        y = model.infer(np.array(values.flatten(), np.float32).reshape(len(values), -1))
    return pa.FixedSizeListArray.from_arrays(pa.array(y.ravel()), y.shape[1])


def bare(source: str, target: str) -> None:
    import pyarrow.parquet as pq

    def batches() -> object:
        if engine.KIND == "jpeg":
            files = sorted(Path(source).iterdir())
            for start in range(0, len(files), BATCH):
                yield pa.array([file.read_bytes() for file in files[start : start + BATCH]])
        else:
            for batch in pq.ParquetFile(source).iter_batches(BATCH):
                yield batch["x"]

    model, writer = engine.Engine(), None
    for values in batches():
        table = pa.table({"y": compute(model, values)})
        writer = writer or pq.ParquetWriter(f"{target}/y.parquet", table.schema)
        writer.write_table(table)
    writer.close()


def ray_data(source: str, target: str) -> None:
    import ray

    class Model:
        def __init__(self) -> None:
            self.model = engine.Engine()

        def __call__(self, batch: pa.Table) -> pa.Table:
            values = batch["bytes" if engine.KIND == "jpeg" else "x"].combine_chunks()
            return pa.table({"y": compute(self.model, values)})

    read = ray.data.read_binary_files if engine.KIND == "jpeg" else ray.data.read_parquet
    # An actor for each core would leave no core for reading.
    options = {"batch_size": BATCH, "batch_format": "pyarrow", "concurrency": engine.WORKERS, "num_cpus": 0.5}
    read(source).map_batches(Model, **options).write_parquet(target)


def daft(source: str, target: str) -> None:
    import daft

    @daft.cls(max_concurrency=engine.WORKERS)
    class Model:
        def __init__(self) -> None:
            self.model = engine.Engine()

        @daft.method.batch(return_dtype=daft.DataType.list(daft.DataType.float32()), batch_size=BATCH)
        def compute(self, values: daft.Series) -> object:
            return compute(self.model, values.to_arrow())

    if engine.KIND == "jpeg":
        frame = daft.from_glob_path(f"{source}/*").select(daft.col("path").download().alias("x"))
    else:
        frame = daft.read_parquet(source)
    frame.select(Model().compute(frame["x"]).alias("y")).write_parquet(target)


if __name__ == "__main__":
    way, *places = sys.argv[1:]
    {"bare": bare, "ray_data": ray_data, "daft": daft}[way](*places)
    print(json.dumps("written"))
