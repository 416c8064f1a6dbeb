"""A request that kills the process which computes it is given up alone."""

import numpy as np
import pytest

from cluster_serving.client import PoisonRequest
from cluster_serving.protocol.dead_letters import DeadLetter
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures.handled import write
from tests.support.fixtures.waiting import wait_until

# What kills a process is the same in a handler as in a model, and no library has to be loaded after each death.
KILLER = """
    import ctypes
    import os
    import time

    class Panic(BaseException):
        '''As the native part of a Python package raises it.'''

    class Handler:
        '''Doubles its input; ends its process at -1, panics at -2, crashes at -3, takes a second from 1000 on.'''

        inputs = {"x": "float32[3]"}
        outputs = {"y": "float32[3]"}

        def predict(self, batch):
            x = batch["x"]
            if (x == -3).any():
                ctypes.string_at(0)
            if (x >= 1000).any():
                time.sleep(1)
            if (x == -2).any():
                raise Panic("cannot go on")
            if (x < 0).any():
                os._exit(1)
            return {"y": x * 2}
    """


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_request_that_kills_its_process_becomes_a_dead_letter(started, cluster, cluster_db, tmp_path, mode):
    name = f"poison-{mode}"
    model = write(tmp_path, KILLER)
    requests, results = started(jobName=name, modelPath=model, executionMode=mode, maxDeliveries=2)
    for number in range(60):
        requests.enqueue(f"r{number}", x=np.full(3, {20: -2, 30: -1}.get(number, number), "f4"))
    for number in range(60):
        if number in (20, 30):
            last = "process .*, at .*Panic: cannot go on" if number == 20 else r"process \d+ on [\w.-]+$"
            with pytest.raises(PoisonRequest, match=f"given up after 2 attempts.*{last}"):
                results.query(f"r{number}", timeout=120)
        else:
            assert results.query(f"r{number}", timeout=120).tolist() == [2 * number] * 3
    letters = {letter[b"uri"]: letter[b"traceback"] for _, letter in cluster_db.xrange(JobKeys(name).dead_letters)}
    assert letters.keys() == {b"r20", b"r30"}
    assert b"in predict" in letters[b"r20"]
    assert not letters[b"r30"]
    assert cluster_db.xlen(name) == 0
    wait_until(lambda: not cluster_db.exists(JobKeys(name).attempts))
    wait_until(lambda: cluster.state_of(name) == "RUNNING")


def test_a_request_that_crashes_its_process_alone_is_given_up_then(started, cluster, cluster_db, tmp_path):
    """The slow requests are computed by another worker, which Flink ends each time: that convicts none of them."""
    name = "poison-crash"
    requests, results = started(
        jobName=name,
        modelPath=write(tmp_path, KILLER),
        executionMode="process",
        modelParallelism=2,
        maxBatchSize=1,
    )
    numbers = [number for crash in range(2) for number in (-3, 1000 + crash)] + list(range(10))
    for index, number in enumerate(numbers):
        requests.enqueue(f"r{index}", x=np.full(3, number, "f4"))
    for index, number in enumerate(numbers):
        if number == -3:
            with pytest.raises(PoisonRequest, match="given up after .* attempts.*at Fatal Python error: Segmentation"):
                results.query(f"r{index}", timeout=150)
        else:
            assert results.query(f"r{index}", timeout=150).tolist() == [2 * number] * 3
    letters = list(cluster_db.xrange(JobKeys(name).dead_letters))
    assert len(letters) == 2
    for _, letter in letters:
        assert b"in predict" in letter[b"traceback"]
    wait_until(lambda: not cluster_db.exists(JobKeys(name).attempts))
    wait_until(lambda: cluster.state_of(name) == "RUNNING")


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_record_that_kills_its_process_is_given_up_without_the_others_of_its_entry(
    started, cluster_db, front, tmp_path, mode
):
    name = f"poison-record-{mode}"
    model = write(tmp_path, KILLER)
    started(jobName=name, modelPath=model, executionMode=mode, maxDeliveries=2, maxBatchSize=8)
    numbers = [1, 2, -1, 3, -2, 4]
    body = {"model": name, "instances": [{"x": [number] * 3} for number in numbers]}
    place = front.post("/v1/requests", json=body).headers["location"]
    assert cluster_db.xlen(name) == 1
    answer = {}
    while answer.get("status") in (None, "pending"):
        answer = front.get(f"{place}?wait=30").json()
    for number, prediction in zip(numbers, answer["predictions"], strict=True):
        if number > 0:
            assert prediction == {"value": [2 * number] * 3}
        else:
            assert prediction["code"] == "POISON_REQUEST"
            assert "given up after 2 attempts" in prediction["error"]
    letters = [DeadLetter.parse(letter) for _, letter in cluster_db.xrange(JobKeys(name).dead_letters)]
    assert [letter.request.decode()[1]["x"].tolist() for letter in letters] == [[-1] * 3, [-2] * 3]
    assert "in predict" in letters[1].traceback
    wait_until(lambda: not cluster_db.exists(JobKeys(name).attempts))
