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


def compute(model: engine.Engine, values: list | np.ndarray) -> np.ndarray:
    """Compute images as bytes, or rows."""
    if engine.KIND == "jpeg":
        return model.infer(np.stack([engine.decode(raw) for raw in values]))
    return model.infer(np.array(values, np.float32))


def column(y: np.ndarray) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(y.ravel()), y.shape[1])


def bare(source: str, target: str) -> None:
    import pyarrow.parquet as pq

    def batches() -> object:
        if engine.KIND == "jpeg":
            files = sorted(Path(source).iterdir())
            for start in range(0, len(files), BATCH):
                yield [file.read_bytes() for file in files[start : start + BATCH]]
        else:
            for batch in pq.ParquetFile(source).iter_batches(BATCH):
                yield batch["x"].flatten().to_numpy().reshape(len(batch), -1)

    model, writer = engine.Engine(), None
    for values in batches():
        table = pa.table({"y": column(compute(model, values))})
        writer = writer or pq.ParquetWriter(f"{target}/y.parquet", table.schema)
        writer.write_table(table)
    writer.close()


def ray_data(source: str, target: str) -> None:
    import ray

    class Model:
        def __init__(self) -> None:
            self.model = engine.Engine()

        def __call__(self, batch: dict) -> dict:
            return {"y": compute(self.model, batch["bytes" if engine.KIND == "jpeg" else "x"])}

    read = ray.data.read_binary_files if engine.KIND == "jpeg" else ray.data.read_parquet
    read(source).map_batches(Model, batch_size=BATCH, concurrency=engine.WORKERS).write_parquet(target)


def daft(source: str, target: str) -> None:
    import daft

    @daft.cls(max_concurrency=engine.WORKERS)
    class Model:
        def __init__(self) -> None:
            self.model = engine.Engine()

        @daft.method.batch(return_dtype=daft.DataType.list(daft.DataType.float32()), batch_size=BATCH)
        def compute(self, values: daft.Series) -> object:
            return column(compute(self.model, values.to_arrow().to_pylist() if engine.KIND == "jpeg" else rows(values)))

    def rows(values: daft.Series) -> np.ndarray:
        return values.to_arrow().flatten().to_numpy().reshape(len(values), -1)

    if engine.KIND == "jpeg":
        frame = daft.from_glob_path(f"{source}/*").select(daft.col("path").download().alias("x"))
    else:
        frame = daft.read_parquet(source)
    frame.select(Model().compute(frame["x"]).alias("y")).write_parquet(target)


if __name__ == "__main__":
    way, *places = sys.argv[1:]
    {"bare": bare, "ray_data": ray_data, "daft": daft}[way](*places)
    print(json.dumps("written"))
