"""Inputs in files: the side of the job, on a real Redis."""

import os
import time

import numpy as np
import pytest

from cluster_serving.client import InputQueue, InvalidInput, OutputQueue, RequestTooLarge
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import Answer, write_answers
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.limits import publish_limits
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.connectors.stages.payloads import SWEEP_AGE, Payloads
from cluster_serving.protocol.keys import GROUP, PRIORITIES, JobKeys
from cluster_serving.protocol.payloads.files import MIN_BYTES
from tests.support.fixtures import slots

LARGE = np.arange(MIN_BYTES // 4, dtype="f4")


@pytest.fixture
def options(folder, job):
    return RedisOptions("", job, payload_folder=str(folder), max_request_bytes=1 << 20)


@pytest.fixture
def requests(redis_server, db, job, options):
    publish_limits(db, options)
    create_groups(db, job)
    with InputQueue(port=redis_server.port, name=job) as queue:
        yield queue


@pytest.fixture
def results(redis_server, job):
    with OutputQueue(port=redis_server.port, name=job) as queue:
        yield queue


@pytest.fixture
def read(db, job):
    reader = StreamReader(db, job, "c", 60_000)
    return lambda: reader.read(10, None)


@pytest.fixture
def payloads(db, job, options):
    return Payloads(slots.make(db, options))


def test_a_request_is_read_with_its_file_which_is_removed_when_it_is_answered(
    db, job, folder, requests, read, payloads
):
    requests.enqueue("a", x=LARGE)
    requests.enqueue("b", x=np.zeros(2))
    large, small = map(payloads.readmit, read())
    np.testing.assert_array_equal(large.decode()[1]["x"], LARGE)
    np.testing.assert_array_equal(small.decode()[1]["x"], np.zeros(2))
    assert len(list(folder.iterdir())) == 1
    write_answers(db, job, 60, [Answer(entry, {"value": "1"}) for entry in (large, small)])
    assert not list(folder.iterdir())


def test_a_file_stays_while_its_request_may_have_to_be_computed(db, job, folder, requests, read, payloads):
    requests.enqueue("a", x=LARGE)
    (loaded,) = map(payloads.readmit, read())
    # A restored group delivers the request as if it had never been read.
    db.xgroup_destroy(job, GROUP)
    create_groups(db, job)
    assert write_answers(db, job, 60, [Answer(loaded, {"value": "1"})]) == 0
    assert len(list(folder.iterdir())) == 1


def test_a_file_is_removed_though_another_request_of_the_batch_is_already_answered(
    db, job, folder, requests, read, payloads
):
    requests.enqueue("a", x=LARGE)
    requests.enqueue("b", x=LARGE)
    loaded = [payloads.readmit(entry) for entry in read()]
    write_answers(db, job, 60, [Answer(loaded[0], {"value": "1"})])
    assert len(list(folder.iterdir())) == 1
    assert write_answers(db, job, 60, [Answer(entry, {"value": "2"}) for entry in loaded]) == 1
    assert not list(folder.iterdir())


def test_a_uri_that_is_no_text_is_answered_for_its_missing_file(db, job, requests, read, payloads):
    db.xadd(job, {"uri": b"\xff", "serde": "arrow", "data_file": "0" * 32})
    assert list(map(payloads.readmit, read())) == [None]
    assert db.hget(JobKeys(job).native_result("").encode() + b"\xff", "code") == b"INVALID_INPUT"


def refused(results, uri, error, match):
    with pytest.raises(error, match=match):
        results.query(uri)


def test_a_file_that_is_missing_or_too_large_is_an_error_of_its_request(folder, requests, results, read, payloads):
    requests.enqueue("missing", x=LARGE)
    for file in folder.iterdir():
        file.unlink()
    requests.enqueue("large", x=np.zeros(1 << 18))
    requests.enqueue("good", x=LARGE)
    loaded = list(map(payloads.readmit, read()))
    assert loaded[:2] == [None, None]
    assert loaded[2].uri == "good"
    refused(results, "missing", InvalidInput, "does not exist")
    refused(results, "large", RequestTooLarge, r"more than maxRequestBytes \(1048576\)")
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("name", ["../secret", "x", "", "a" * 32 + "/.."])
def test_a_hostile_name_is_an_error_and_removes_nothing(db, job, tmp_path, results, requests, read, payloads, name):
    secret = tmp_path / "secret"
    secret.write_text("kept")
    db.xadd(job, {"uri": "a", "data_file": name, "serde": "arrow"})
    for entry in read():
        loaded = payloads.readmit(entry)
        assert (loaded is None) == bool(name)
    if name:
        refused(results, "a", InvalidInput, "expected 32 hexadecimal digits")
    assert secret.read_text() == "kept"


def test_a_job_without_a_folder_says_so(db, job, results, requests, read):
    requests.enqueue("a", x=LARGE)
    (entry,) = read()
    assert Payloads(slots.make(db, RedisOptions("", job))).readmit(entry) is None
    refused(results, "a", InvalidInput, "this job has no folder for files")


def test_a_request_that_was_queued_twice_keeps_its_result(db, job, requests, results, read, payloads):
    requests.enqueue("a", x=LARGE)
    ((_, fields),) = db.xrange(job)
    db.xadd(job, fields)
    first, second = read()
    write_answers(db, job, 60, [Answer(payloads.readmit(first), {"value": "kept"})])
    assert payloads.readmit(second) is None
    assert db.hgetall(JobKeys(job).native_result("a")) == {b"value": b"kept"}
    assert db.xpending(job, GROUP)["pending"] == 0
    assert db.xlen(job) == 0


def test_the_sweep_removes_old_files_without_a_request(db, job, folder, requests, options):
    for index in range(60):
        requests.enqueue(f"r{index}", x=LARGE, priority=PRIORITIES[index % 3])
    waiting = {file.name for file in folder.iterdir()}
    old, young = folder / ("a" * 32), folder / ("b" * 32)
    for file in (old, young):
        file.touch()
    long_ago = time.time() - SWEEP_AGE - 1
    for file in folder.iterdir():
        if file != young:
            os.utime(file, (long_ago, long_ago))
    Payloads(slots.make(db, options, index=1)).begin()
    assert old.exists()
    payloads = Payloads(slots.make(db, options))
    payloads.begin()
    assert {file.name for file in folder.iterdir()} == {*waiting, young.name}
    old.touch()
    os.utime(old, (long_ago, long_ago))
    payloads.begin()
    assert old.exists(), "only once an hour"


def test_only_payloads_are_swept(folder, tmp_path, requests, payloads):
    precious = tmp_path / "thesis.txt"
    others = [folder / "thesis.txt", folder / ("a" * 32), folder / ("b" * 32), precious]
    precious.write_text("kept")
    others[0].write_text("kept")
    others[1].mkdir()
    others[2].symlink_to(precious)
    (folder / ("c" * 32)).write_text("left behind")
    old = time.time() - SWEEP_AGE - 60
    for path in (*others, folder / ("c" * 32)):
        os.utime(path, (old, old), follow_symlinks=False)
    payloads.begin()
    assert all(path.exists() for path in others)
    assert not (folder / ("c" * 32)).exists()
