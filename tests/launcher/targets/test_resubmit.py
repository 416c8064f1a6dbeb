"""What jobs were started with, as it is kept and read again."""

import subprocess
import sys

import pytest

from cluster_serving.job.options import JobOptions, ModelOptions, RedisOptions
from cluster_serving.launcher.services import flink_cluster
from cluster_serving.launcher.targets import resubmit
from cluster_serving.launcher.targets.records import JobRecords
from cluster_serving.settings.addresses import Address

OPTIONS = JobOptions("start-1", ModelOptions("m"), RedisOptions("redis://:secret@localhost:1", "kept"))

FULL_DISK = """
import resource, sys
from pathlib import Path
from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.targets.records import JobRecords

resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    JobRecords(Path(sys.argv[1])).remember(JobOptions.from_json(sys.argv[2]))
except OSError:
    sys.exit(3)
"""


def test_a_record_is_whole_and_private(tmp_path):
    records = JobRecords(tmp_path)
    records.remember(OPTIONS)
    (record,) = (tmp_path / "jobs").iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    assert subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path, OPTIONS.to_json()]).returncode == 3
    assert JobOptions.from_json(record.read_text()) == OPTIONS
    assert records.recall("kept", "start-1") == OPTIONS
    records.forget("kept")
    assert not record.exists()
    assert records.recall("kept", "start-1") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "\udce9"])
def test_a_damaged_record_is_no_concern_of_other_jobs(tmp_path, monkeypatch, text):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path))
    address = Address("localhost", 1)
    folder = flink_cluster.folder(address) / "jobs"
    folder.mkdir(parents=True)
    for name in "ab":
        (folder / f"{name}.json").write_bytes(text.encode("utf8", "surrogateescape"))
    submitted, failed = resubmit.resubmit(address)
    assert (submitted, list(failed)) == ([], ["a", "b"])
