"""`cluster-serving-cli score --flink`: files in a batch job of Flink."""

import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chaos.faults import kept_processes
from tests.support.fixtures.predictor import save_doubling
from tests.support.fixtures.waiting import wait_until

ROWS, GROUP = 150_000, 500


@pytest.fixture
def folder(own_cluster, tmp_path):
    """A folder with a configuration, a model that doubles three numbers, and a file of many row groups."""
    save_doubling(tmp_path / "model", 3)
    folder = own_cluster.configure(jobName="unused", modelPath=tmp_path / "model")
    (folder / "data").mkdir()
    x = pa.FixedSizeListArray.from_arrays(np.arange(3.0 * ROWS, dtype="f4"), 3)
    table = pa.table({"id": np.arange(ROWS), "x": x})
    pq.write_table(table, folder / "data" / "a.parquet", row_group_size=GROUP)
    pq.write_table(pa.table({"z": [1]}), folder / "data" / "b.parquet")
    return folder


def times(folder):
    """When each file of the output was written."""
    return {file: file.stat().st_mtime_ns for file in folder.glob("out/*.parquet")}


def test_each_row_is_scored_once_although_the_command_and_a_task_manager_are_killed(own_cluster, folder):
    scoring = ("score", "--flink", "--input", "data", "--output", "out", "--processes", "2")
    with own_cluster.running("cluster-serving-cli", folder, *scoring) as command:
        wait_until(lambda: len(times(folder)) > 3, 120)
        assert command.poll() is None
        command.send_signal(signal.SIGKILL)
    with own_cluster.running("cluster-serving-cli", folder, *scoring) as command:
        wait_until(lambda: len(times(folder)) > 20, 60)
        before = times(folder)
        assert len(before) < ROWS // GROUP
        os.kill(kept_processes(own_cluster, "taskmanager")[0], signal.SIGKILL)
        output, _ = command.communicate(timeout=240)
    assert "which an earlier command has submitted" in output
    assert command.returncode == 1 and "b.parquet (row group 0): there is no column 'x' for the input 'x'" in output, (
        output
    )
    assert f"of {ROWS // GROUP + 1} units were there before, 1 could not be scored" in output
    after = times(folder)
    assert {file: after[file] for file in before} == before
    rows = [row for file in sorted(after) for row in pq.read_table(file).to_pylist()]
    assert [row["id"] for row in rows] == [*range(ROWS)]
    assert rows[-1]["y"] == [2 * number for number in range(3 * ROWS - 3, 3 * ROWS)]
    others = sorted(file.name for file in (folder / "out").iterdir() if file not in after)
    assert others == ["_score.json", "_score.lock"]


def test_an_encrypted_model_is_refused(own_cluster, folder):
    config = folder / "config.yaml"
    config.write_text(f"{config.read_text()}\nmodelEncrypted: true\nmodelSecret: a:b\n")
    done = own_cluster.run("cluster-serving-cli", "score", "--flink", "--input", "data", "--output", "out", cwd=folder)
    assert done.returncode == 1 and "score --flink does not take an encrypted model" in done.stdout + done.stderr
