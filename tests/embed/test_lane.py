"""`cluster-serving-cli score --job`: files through a running job, while it has no other requests."""

import os
from itertools import pairwise

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster_serving.client import InputQueue
from cluster_serving.client.sending.convert import to_inputs
from cluster_serving.embed.lane import sendable
from tests.support.fixtures import handled
from tests.support.fixtures.waiting import wait_until

ROWS = 30_000
SCORE = ("score", "--output", "out", "--input", "data", "--job", "lane")


@pytest.fixture(scope="module")
def job(cluster, tmp_path_factory):
    """A job whose handler writes for each batch if it has a request of others, whose input is negative."""
    model = tmp_path_factory.mktemp("model")
    handled.write(
        model,
        f"""
        import time

        class Handler:
            inputs = {{"x": "float32"}}
            outputs = {{"y": "float32"}}

            def predict(self, batch):
                with open({str(model / "batches")!r}, "a") as log:
                    log.write("other\\n" if (batch["x"] < 0).any() else "score\\n")
                time.sleep(0.004)
                return {{"y": 2 * batch["x"]}}
        """,
    )
    folder = cluster.configure(jobName="lane", modelPath=model)
    done = cluster.run("cluster-serving-start", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "data").mkdir()
    yield folder, model / "batches"
    cluster.stop("lane")


def scored(log):
    """Number of batches of the scoring that have begun."""
    return log.read_text().count("score") if log.exists() else 0


def test_a_request_meets_one_batch_at_most_and_a_few_of_them_meet_any(cluster, job):
    folder, log = job
    table = pa.table({"id": range(ROWS), "x": [float(row) for row in range(ROWS)]})
    pq.write_table(table, folder / "data" / "a.parquet")
    scoring = cluster.running("cluster-serving-cli", folder, *SCORE)
    with InputQueue(port=cluster.redis_port, name="lane") as queue, scoring as command:
        wait_until(lambda: scored(log) > 20, 60)
        *_, lane = psutil.Process(command.pid).children(recursive=True)
        # By a session of its own its niceness counts beside the job, and the shell of the user keeps its own.
        assert os.getsid(lane.pid) == lane.pid and lane.nice() > os.nice(0)
        # The slot has a batch, and one waits, until the first request is seen.
        queue.predict({"x": -1.0}, timeout=60)
        counts = [scored(log)]
        for _ in range(200):
            assert queue.predict({"x": -1.0}, timeout=60).value == -2
            counts.append(scored(log))
        assert command.poll() is None, "it ended before the requests"
        met = [after - before for before, after in pairwise(counts)]
        assert max(met) <= 2 and sum(met) <= 20, met
        # Then it goes on, where it would need half an hour at this rate.
        output, _ = command.communicate(timeout=300)
    assert command.returncode == 0, output
    assert f"{ROWS:,} rows in" in output
    rows = pq.read_table(folder / "out" / "a.00000.parquet").to_pylist()
    assert rows == [{"id": row, "y": 2.0 * row, "error": None} for row in range(ROWS)]


def test_errors_are_those_of_the_rows(cluster, job, tmp_path):
    folder, _ = job
    (tmp_path / "rows.jsonl").write_text('{"x": 1}\n{"x": null}\n{"x": "cat"}\n{"x": 2}')
    arguments = ("--input", tmp_path / "rows.jsonl", "--output", tmp_path / "out")
    done = cluster.run("cluster-serving-cli", *SCORE, *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "out" / "rows.jsonl.parquet").to_pylist()
    np.testing.assert_array_equal([row["y"] for row in rows if row["error"] is None], [2, np.nan, 4])
    assert rows[2]["error"] == "INVALID_INPUT: input 'x' is 'cat'; expected a number"
    assert "Task was destroyed" not in done.stderr


def test_a_job_that_does_not_run_is_named(cluster, job, tmp_path):
    folder, _ = job
    (tmp_path / "rows.jsonl").write_text('{"x": 1}')
    arguments = ("--input", tmp_path / "rows.jsonl", "--output", tmp_path / "out")
    done = cluster.run("cluster-serving-cli", *SCORE[:-1], "absent", *arguments, cwd=folder)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: job absent has no slot that is ready; cluster-serving-start starts it" in done.stderr


def test_a_text_is_no_path_of_a_file(tmp_path):
    (tmp_path / "cat.png").write_bytes(b"an image")
    path = str(tmp_path / "cat.png")
    assert to_inputs(sendable({"x": path}))["x"].tolist() == path
