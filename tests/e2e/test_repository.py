"""A folder of models, served by one job, as a user does it."""

import json
import os
import shutil
import signal

import numpy as np
import pytest

from cluster_serving.client import InferenceFailed, InputQueue, InvalidInput, ModelError
from cluster_serving.protocol.hosting import orders
from cluster_serving.protocol.keys import JobKeys
from tests.chaos.faults import kept_processes, python_workers
from tests.support.fixtures.handled import NO_NEGATIVES, write
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

ROW = np.arange(4, dtype="f4")


def test_a_folder_of_models_is_served_by_one_job(cluster, cluster_db, front, tmp_path):
    root = tmp_path / "models"
    for name in ("shop-double", "shop-picky", "shop-broken", "notes"):
        (root / name).mkdir(parents=True)
    model_zoo.save_openvino_product(root / "shop-double", 2)
    model_zoo.save_onnx_digits(root / "shop-digits")
    (root / "shop-digits" / "config.yaml").write_text("postProcessing: argmax\n")
    write(root / "shop-picky", NO_NEGATIVES)
    (root / "shop-broken" / "model.onnx").write_bytes(b"no model")

    started = cluster.start(jobName="shop", modelPath=root, modelParallelism=2, watchModel=True, modelControl=True)
    assert started.returncode == 0, started.stdout + started.stderr
    assert "models  3 of 4: shop-digits, shop-double, shop-picky\n" in started.stdout
    assert 'InputQueue(name="shop-digits"' in started.stdout
    assert "notes (it holds no model)" in started.stderr
    assert "the model shop-broken is not served:" in started.stderr and "is not an ONNX model" in started.stderr

    def ask(name, **inputs):
        with InputQueue(port=cluster.redis_port, name=name) as queue:
            return queue.predict(inputs, timeout=60)

    np.testing.assert_array_equal(ask("shop-double", x=ROW), ROW * 2)
    images, labels = model_zoo.digits_data()
    assert np.mean([ask("shop-digits", x=images[at]) == labels[at] for at in range(20)]) > 0.8
    x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": ROW.tolist()}
    infer = front.post("/v2/models/shop-double/infer", json={"inputs": [x]}).json()
    assert infer["outputs"][0]["data"] == (ROW * 2).tolist()
    predict = front.post("/models/shop-picky/predict", json={"instances": [{"x": 3}]}).json()
    assert predict["predictions"][0]["value"] == 3
    with pytest.raises(
        ModelError, match="model 'shop-broken' is not served: .*models/shop-broken/model.onnx is not an"
    ):
        ask("shop-broken", x=ROW)
    with pytest.raises(
        InvalidInput, match="the job shop serves several models; name one of them: shop-digits, shop-double"
    ):
        ask("shop", x=ROW)
    with pytest.raises(InferenceFailed, match="-1 is negative"):
        ask("shop-picky", x=np.float32(-1))
    letters = cluster.run("cluster-serving-cli", "dead", "list", "shop-picky", "--json", cwd=cluster.folder / "shop")
    assert [letter["code"] for letter in json.loads(letters.stdout)] == ["INFERENCE_FAILED"]

    status = json.loads(cluster.run("cluster-serving-cli", "status", "--json", cwd=cluster.folder / "shop").stdout)
    states = {one["name"]: (one["state"], one["dead_letters"]) for one in status["hosted"]}
    assert states == {
        "shop-broken": ("failed", 0),
        "shop-digits": ("ready", 0),
        "shop-double": ("ready", 0),
        "shop-picky": ("ready", 1),
    }
    named = cluster.run("cluster-serving-cli", "status", "shop-double", cwd=cluster.folder / "shop")
    assert named.returncode == 1 and "shop-double is a model of the job shop, and not a job" in named.stderr
    refused = cluster.run("cluster-serving-cli", "forget", "shop-double", cwd=cluster.folder / "shop")
    assert refused.returncode == 1 and "shop-double is a model of the job shop, and not a job; it is" in refused.stderr
    canary = cluster.run("cluster-serving-cli", "update", "--canary", "10", cwd=cluster.folder / "shop")
    assert canary.returncode == 1 and "job shop serves several models; a canary is for jobs of one" in canary.stderr

    several = cluster.run("cluster-serving-cli", "update", cwd=cluster.folder / "shop")
    assert "job shop serves several models; cluster-serving-cli update NAME changes one; --in-place" in several.stderr
    promoted = cluster.run("cluster-serving-cli", "promote", "shop-double", cwd=cluster.folder / "shop")
    assert promoted.returncode == 1 and "shop-double is a model of the job shop, and not a job" in promoted.stderr

    # One changes while it runs: the start of Flink's job stays, and so does a copy of the files.
    job_id = status["job_id"]
    write(root / "shop-picky", NO_NEGATIVES.replace('{"y": x}', '{"y": x + 1}'))
    updated = cluster.run("cluster-serving-cli", "update", "shop-picky", cwd=cluster.folder / "shop")
    assert updated.returncode == 0, updated.stdout + updated.stderr
    assert "shop-picky: version 2, Python handler" in updated.stdout
    assert ask("shop-picky", x=np.float32(3)) == 4
    write(root / "shop-picky", "class Handler:\n    1 +")
    failed = cluster.run("cluster-serving-cli", "update", "shop-picky", cwd=cluster.folder / "shop")
    assert failed.returncode == 1 and "the model shop-picky is not changed: " in failed.stderr
    assert ask("shop-picky", x=np.float32(3)) == 4
    rolled_back = cluster.run("cluster-serving-cli", "rollback", "shop-picky", cwd=cluster.folder / "shop")
    assert "shop-picky: version 3, Python handler" in rolled_back.stdout, rolled_back.stderr
    assert ask("shop-picky", x=np.float32(3)) == 3
    stopped = cluster.run("cluster-serving-stop", "shop-picky", cwd=cluster.folder / "shop")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    gone = front.post("/models/shop-picky/predict", json={"instances": [{"x": 3}]})
    assert gone.status_code == 503 and "cluster-serving-cli update shop-picky loads it again" in gone.text

    # By a client, and by the watch.
    write(root / "shop-picky", NO_NEGATIVES)
    model_zoo.save_openvino_product(root / "shop-broken", 5)
    (root / "shop-broken" / "model.onnx").unlink()
    loaded = front.post("/v2/repository/models/shop-picky/load", timeout=60)
    assert loaded.status_code == 200, loaded.text
    assert ask("shop-picky", x=np.float32(3)) == 3
    assert front.post("/v2/repository/models/shop-digits/unload", timeout=60).status_code == 200
    index = {each["name"]: each["state"] for each in front.post("/v2/repository/index").json()}
    assert index["shop-digits"] == "UNAVAILABLE" and index["shop-picky"] == "READY"
    wait_until(lambda: _state(cluster_db, "shop-broken") == "ready", 60)
    # Its other slot may have been a moment later.
    wait_until(lambda: not cluster_db.exists(orders.key("shop")), 60)
    np.testing.assert_array_equal(ask("shop-broken", x=ROW), ROW * 5)
    status = json.loads(cluster.run("cluster-serving-cli", "status", "--json", cwd=cluster.folder / "shop").stdout)
    assert status["job_id"] == job_id and status["restarts"] == 0
    states = {one["name"]: one["state"] for one in status["hosted"]}
    assert states["shop-digits"] == "unloaded" and states["shop-picky"] == "ready"

    # A name that is taken is refused by the watch, and by a restart before the job is stopped.
    cluster_db.hset(JobKeys("shop-twice").record, "state", "running")
    shutil.copytree(root / "shop-double", root / "shop-twice")
    wait_until(lambda: _has_told(cluster_db, b"failed: the model shop-twice has the name of a job"), 60)
    taken = cluster.restart("shop")
    assert taken.returncode == 1 and "the model shop-twice has the name of a job" in taken.stderr
    np.testing.assert_array_equal(ask("shop-double", x=ROW), ROW * 2)
    cluster_db.delete(JobKeys("shop-twice").record)
    shutil.rmtree(root / "shop-twice")

    # One goes, and another one has a new name.
    shutil.rmtree(root / "shop-broken")
    shutil.move(root / "shop-double", root / "shop-twice")
    # The watch does not try the files that it was refused again.
    next((root / "shop-twice").iterdir()).touch()
    names = {b"shop-digits", b"shop-picky", b"shop-twice"}
    wait_until(lambda: {*cluster_db.hkeys(JobKeys("shop").models)} == names, 60)
    wait_until(lambda: not cluster_db.exists(JobKeys("shop").command), 60)
    # From here on in process mode.
    config = cluster.folder / "shop" / "config.yaml"
    config.write_text(config.read_text() + "executionMode: process\n")
    restarted = cluster.restart("shop")
    assert restarted.returncode == 0, restarted.stdout + restarted.stderr
    assert "models  3 of 3: shop-digits, shop-picky, shop-twice\n" in restarted.stdout
    np.testing.assert_array_equal(ask("shop-twice", x=ROW), ROW * 2)
    managers = kept_processes(cluster, "taskmanager")
    with InputQueue(port=cluster.redis_port, name="shop-twice") as queue:
        answers = queue.predict_many([{"x": ROW + number} for number in range(400)], in_flight=50, timeout=60)
        np.testing.assert_array_equal(next(answers), ROW * 2)
        os.kill(python_workers(cluster)[0], signal.SIGKILL)
        for number, answer in enumerate(answers, 1):
            np.testing.assert_array_equal(answer, (ROW + number) * 2)
    assert kept_processes(cluster, "taskmanager") == managers
    assert sorted(cluster_db.hkeys(JobKeys("shop").generations)) == [b"2", b"last", b"version"]
    assert not cluster_db.exists(JobKeys("shop-picky").stats(1))
    assert not cluster_db.exists("shop-double", JobKeys("shop-double").slots(), JobKeys("shop-double").record)
    with pytest.raises(ModelError, match="model 'shop-double' was removed from the job shop"):
        ask("shop-double", x=ROW)

    assert cluster.stop("shop").returncode == 0
    forgot = cluster.run("cluster-serving-cli", "forget", "--yes", cwd=cluster.folder / "shop")
    assert "Removed job shop, with 1 dead letter." in forgot.stdout
    assert not cluster_db.exists("shop-picky", JobKeys("shop-picky").dead_letters, JobKeys("shop").models)


def _state(db, name):
    report = db.hget(JobKeys("shop").models, name)
    return report and json.loads(report)["state"]


def _has_told(db, text):
    told = any(text in event[b"what"] for _, event in db.xrevrange(JobKeys("shop").events, count=5))
    return told and not db.exists(JobKeys("shop").command)
