"""A folder of models, served by one job, as a user does it."""

import json
import shutil

import numpy as np
import pytest

from cluster_serving.client import InferenceFailed, InputQueue, InvalidInput, ModelError
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures.handled import NO_NEGATIVES, write
from tests.support.payloads import model_zoo

ROW = np.arange(4, dtype="f4")


def test_a_folder_of_models_is_served_by_one_job(cluster, cluster_db, front, tmp_path):
    root = tmp_path / "models"
    for name in ("double", "picky", "broken", "notes"):
        (root / name).mkdir(parents=True)
    model_zoo.save_openvino_product(root / "double", 2)
    model_zoo.save_onnx_digits(root / "digits")
    (root / "digits" / "config.yaml").write_text("postProcessing: argmax\n")
    write(root / "picky", NO_NEGATIVES)
    (root / "broken" / "model.onnx").write_bytes(b"no model")

    started = cluster.start(jobName="shop", modelPath=root, modelParallelism=None)
    assert started.returncode == 0, started.stdout + started.stderr
    assert "models  3 of 4: digits, double, picky\n" in started.stdout
    assert 'InputQueue(name="digits"' in started.stdout
    assert "notes (it holds no model)" in started.stderr
    assert "the model broken is not served:" in started.stderr and "is not an ONNX model" in started.stderr

    def ask(name, **inputs):
        with InputQueue(port=cluster.redis_port, name=name) as queue:
            return queue.predict(inputs, timeout=60)

    np.testing.assert_array_equal(ask("double", x=ROW), ROW * 2)
    images, labels = model_zoo.digits_data()
    assert np.mean([ask("digits", x=images[at]) == labels[at] for at in range(20)]) > 0.8
    x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": ROW.tolist()}
    infer = front.post("/v2/models/double/infer", json={"inputs": [x]}).json()
    assert infer["outputs"][0]["data"] == (ROW * 2).tolist()
    predict = front.post("/models/picky/predict", json={"instances": [{"x": 3}]}).json()
    assert predict["predictions"][0]["value"] == 3
    with pytest.raises(ModelError, match="model 'broken' cannot be loaded: .*models/broken/model.onnx is not an"):
        ask("broken", x=ROW)
    with pytest.raises(InvalidInput, match="the job shop serves several models; name one of them: digits, double"):
        ask("shop", x=ROW)
    with pytest.raises(InferenceFailed, match="-1 is negative"):
        ask("picky", x=np.float32(-1))
    letters = cluster.run("cluster-serving-cli", "dead", "list", "picky", "--json", cwd=cluster.folder / "shop")
    assert [letter["code"] for letter in json.loads(letters.stdout)] == ["INFERENCE_FAILED"]

    status = json.loads(cluster.run("cluster-serving-cli", "status", "--json", cwd=cluster.folder / "shop").stdout)
    states = {one["name"]: (one["state"], one["dead_letters"]) for one in status["hosted"]}
    assert states == {"broken": ("failed", 0), "digits": ("ready", 0), "double": ("ready", 0), "picky": ("ready", 1)}
    named = cluster.run("cluster-serving-cli", "status", "double", cwd=cluster.folder / "shop")
    assert named.returncode == 1 and "double is a model of the job shop, and not a job" in named.stderr
    for command in (("cluster-serving-stop",), ("cluster-serving-cli", "forget")):
        refused = cluster.run(*command, "double", cwd=cluster.folder / "shop")
        assert refused.returncode == 1 and "double is a model of the job shop, and not a job; it is" in refused.stderr
    canary = cluster.run("cluster-serving-cli", "update", "--canary", "10", cwd=cluster.folder / "shop")
    assert canary.returncode == 1 and "job shop serves several models; a canary is for jobs of one" in canary.stderr

    # The broken one is mended, and another one goes.
    shutil.rmtree(root / "broken")
    shutil.move(root / "double", root / "twice")
    restarted = cluster.restart("shop")
    assert restarted.returncode == 0, restarted.stdout + restarted.stderr
    assert "models  3 of 3: digits, picky, twice\n" in restarted.stdout
    np.testing.assert_array_equal(ask("twice", x=ROW), ROW * 2)
    assert sorted(cluster_db.hkeys(JobKeys("shop").generations)) == [b"2", b"last", b"version"]
    assert not cluster_db.exists(JobKeys("picky").stats(1))
    assert not cluster_db.exists("double", JobKeys("double").slots(), JobKeys("double").limits)

    assert cluster.stop("shop").returncode == 0
    forgot = cluster.run("cluster-serving-cli", "forget", "--yes", cwd=cluster.folder / "shop")
    assert "Removed job shop, with 1 dead letter." in forgot.stdout
    assert not cluster_db.exists("picky", JobKeys("picky").dead_letters, JobKeys("shop").models)
