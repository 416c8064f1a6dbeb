"""A shadow: clients of every kind get the answers of the generation that serves, and the report says what differs."""

import json
import time
from functools import partial

import httpx
import numpy as np
import pytest

from cluster_serving.frontend import arguments
from cluster_serving.protocol.keys import JOBS_KEY, RESULT_PREFIX, JobKeys
from cluster_serving.protocol.original import arrow as original_arrow
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

JOB = "shadowed"
EACH = 60


@pytest.fixture
def shadow(started, cluster, tmp_path):
    """The queue of a job that serves version 1 (its input), and runs version 2 (ten times that) as a shadow."""
    for version, factor in (("1", 1), ("2", 10)):
        model_zoo.save_openvino_product(tmp_path / version, factor)
    settings = {"jobName": JOB, "modelPath": tmp_path}
    queue, _ = started(**settings, modelVersion=1)
    done = cluster.run("cluster-serving-cli", "update", "--shadow", "50", cwd=cluster.configure(**settings))
    assert done.returncode == 0, done.stdout + done.stderr
    return queue


def test_a_shadow_answers_nobody_and_what_it_would_have_answered_is_compared(cluster, cluster_db, shadow):
    # Both versions give the same for zeros, which are half of the requests.
    inputs = [np.full(4, number % 2 * number, "f4") for number in range(EACH)]

    cli = partial(cluster.run, "cluster-serving-cli", cwd=cluster.folder / JOB)
    before = int(cluster_db.get(JobKeys(JOB).answered) or 0)
    # The slots look for roles ten times a second.
    time.sleep(0.3)
    for x in inputs:
        answer = shadow.predict({"x": x}, 30)
        assert answer.version == "1"
        np.testing.assert_array_equal(answer, x)

    for number, x in enumerate(inputs):
        cluster_db.xadd(JOB, {"uri": f"original-{number}", "data": original_arrow.encode_request({"x": x})})
    expected = {JobKeys(JOB).result(f"original-{number}").encode() for number in range(EACH)}
    # An original client takes all keys that begin so, whenever it looks.
    seen = set()
    while seen < expected:
        seen = set(cluster_db.keys(f"{RESULT_PREFIX}{JOB}:*"))
        assert seen <= expected
    for number, x in enumerate(inputs):
        (output,) = original_arrow.decode_result(cluster_db.hget(JobKeys(JOB).result(f"original-{number}"), "value"))
        np.testing.assert_array_equal(output, x)
    cluster_db.delete(*expected)

    options = [f"--redisUrl=redis://127.0.0.1:{cluster.redis_port}", "--port=0", "--grpcPort=0"]
    front = Running(arguments.read(options, {}))
    try:
        for x in inputs[:10]:
            response = httpx.post(f"{front.url}/v2/models/{JOB}/infer", json=v2(x), timeout=30).json()
            assert (response["model_version"], response["outputs"][0]["data"]) == ("1", x.tolist())
        assert httpx.get(f"{front.url}/v2/models/{JOB}", timeout=30).json()["versions"] == ["1"]
    finally:
        front.stop()

    sent = 2 * EACH + 10
    wait_until(lambda: int(cluster_db.hget(JobKeys(JOB).compared(2), "compared") or 0) >= sent // 2 - 5, 60)
    status = json.loads(cli("status", "--json").stdout)
    assert [each["role"] for each in status["generations"]] == ["serving", "shadow"]
    found = status["comparison"]
    assert abs(found["compared"] - sent // 2) <= 5
    assert 0 < found["differing"] < found["compared"]
    assert found["largest_difference"] <= 9 * EACH
    assert (found["serving_failures"], found["shadow_failures"], found["skipped"]) == (0, 0, 0)
    assert all("numbers differ" in example["difference"] for example in found["examples"])
    # The answers of the shadow are none of the job.
    assert int(cluster_db.get(JobKeys(JOB).answered)) - before == sent
    assert not [name for name in cluster_db.smembers(JOBS_KEY) if b":shadow:" in name]

    assert "answers differ" in cli("status").stdout
    # A job can be named where the configuration is that of another one.
    ended = cli("rollback", JOB, cwd=cluster.configure(jobName="another", modelPath="model"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # A JobManager that starts again would submit what it finds there.
    assert [file.name for file in cluster.state.glob(f"flink-*/jobs/{JOB}@*")] == [f"{JOB}@1.json"]
    assert f"{found['compared']} requests, and {found['differing']} answers differ" in ended.stdout
    assert not [key for key in cluster_db.keys(f"{JOB}:shadow*") if b":awaited:" not in key]
    assert shadow.predict({"x": inputs[1]}, 30).version == "1"


def v2(x):
    return {"inputs": [{"name": "x", "shape": [1, *x.shape], "datatype": "FP32", "data": x.tolist()}]}
