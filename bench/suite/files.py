"""A model over files: `cluster-serving-cli score`, a loop over the same file, Ray Data and Daft."""

import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.generator import Load
from cluster_serving.bench.suite import models
from cluster_serving.bench.suite.peers import PEERS, SOURCES, Work
from cluster_serving.bench.suite.session import BenchSession, Measurement
from cluster_serving.bench.suite.stack import AS_INSTALLED, Stack, run

_IN_FLIGHT = 8
_ROW_GROUP = 62_500
_SCRIPT = SOURCES / "files.py"


def files(session: BenchSession, kind: str) -> Measurement:
    """Measure a small model over the rows of a Parquet file, or MobileNetV2 over a folder of JPEG files, to Parquet.

    The time is that of the whole program. The loop has one copy of the model with all cores, the others one per core.
    """
    vectors, cores = kind == "vector", session.cores
    count = session.settings.file_rows if vectors else session.settings.file_images
    model = models.ensure(session.folder / "models", "mlp" if vectors else "mobilenet")
    source = (_table if vectors else _images)(session.folder / "files", count)
    target = session.folder / "files" / "output"

    def measured(compute: Callable[[], object]) -> Measurement:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        begun = time.perf_counter()
        compute()
        return {"rate": count / (time.perf_counter() - begun)}

    def ours() -> object:
        places = ("--input", source, "--output", target.absolute(), "--model", model.absolute())
        # Without a config.yaml in its folder, the command has no keys.
        return run([Path(sys.executable).with_name("cluster-serving-cli"), "score", *places], cwd=source.parent)

    def theirs(way: str, workers: int, threads: int) -> object:
        work = Work(kind, model, (), workers, threads)
        name = "" if way == "bare" else way
        return session.peers.bare(work, way, str(source), str(target.absolute()), script=_SCRIPT, name=name)

    others = {"a loop": partial(theirs, "bare", 1, cores)}
    others |= {name: partial(theirs, name, cores, 1) for name in session.settings.peers if "files" in PEERS[name].kinds}
    return session.compare(partial(measured, ours), {name: partial(measured, run) for name, run in others.items()})


def beside(session: BenchSession) -> Measurement:
    """Measure JPEG files at random times through the asyncio client, alone and while `score --job` uses the same job.

    They are a quarter of what the job can do.
    """
    model = models.ensure(session.folder / "models", "mobilenet")
    source = _images(session.folder / "files", session.settings.file_images)
    with Stack() as stack:
        stack.start("images", model, **AS_INSTALLED)
        endpoint = stack.endpoint("images", payload.image_records("x", "synthetic"))
        most = session.measure(endpoint, Load("closed", "async", _IN_FLIGHT))["rate"]
        alone = partial(session.measure, endpoint, Load("open", rate=most / 4))

        def scored() -> Measurement:
            with stack.scoring(source):
                return alone()

        return session.compare(scored, {"alone": alone})


def flink(session: BenchSession) -> Measurement:
    """Measure a small model over vectors in a Flink job: as a function of SQL, against other ways.

    These are `predict` of a stream, a vectorised function written by hand, and a function of one vector. The time is
    that of the job, whose parallelism is 1.
    """
    work = Work("vector", models.ensure(session.folder / "models", "mlp"), (), threads=session.cores)

    def way(name: str) -> Measurement:
        return dict(session.peers.bare(work, name, str(session.settings.flink_rows), script=SOURCES / "flink_job.py"))

    others = {"predict of a stream": "predict", "vectorised by hand": "vectorised", "one vector a call": "naive"}
    return session.compare(partial(way, "function"), {name: partial(way, code) for name, code in others.items()})


def _table(folder: Path, count: int) -> Path:
    """Return a Parquet file with so many vectors of 64 floats, which is made if it is missing."""
    file = (folder / f"{count}.parquet").absolute()
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        x = np.random.default_rng(0).random((count, 64), np.float32)
        rows = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 64)
        pq.write_table(pa.table({"x": rows}), file, row_group_size=_ROW_GROUP)
    return file


def _images(folder: Path, count: int) -> Path:
    """Return a folder with so many JPEG files, which is made if it is missing."""
    images = (folder / f"{count}-images").absolute()
    if not images.exists():
        images.mkdir(parents=True)
        bodies = [payload.raw_body(record) for record in payload.image_records("x", "synthetic")]
        for number in range(count):
            (images / f"{number:06}.jpg").write_bytes(bodies[number % len(bodies)])
    return images
