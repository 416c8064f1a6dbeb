"""The commands of docs/coming-from/, word for word, on real files of each server."""

import json
import re
import subprocess

import numpy as np
import pytest

from tests.support.fixtures.commands import BIN
from tests.support.fixtures.pages import DOCS, section
from tests.support.payloads import foreign, tables, texts

PAGES = DOCS / "coming-from"


def flower(answer):
    np.testing.assert_allclose(answer["predictions"], foreign.probabilities([foreign.FLOWER]), atol=1e-4)


def tensors(answer):
    (output,) = answer["outputs"]
    np.testing.assert_allclose([output["data"]], foreign.probabilities([foreign.FLOWER]), atol=1e-4)


def boosted(answer):
    (row,) = answer["predictions"]
    expected = foreign.flowers_booster().predict_proba(tables.frame(np.array([foreign.FLOWER])))
    np.testing.assert_allclose([row["probabilities"]], expected, rtol=1e-4)


def embedded(answer):
    mean = texts.tokens("the cat sat")[0].mean(axis=0)
    np.testing.assert_allclose(answer["predictions"], [mean / np.linalg.norm(mean)], atol=1e-4)


@pytest.mark.parametrize(
    ("page", "save", "check"),
    [
        ("torchserve", foreign.save_torchserve, flower),
        ("tensorflow-serving", foreign.save_tensorflow_serving, flower),
        ("triton", foreign.save_triton, tensors),
        ("mlflow-hugging-face#MLflow", foreign.save_mlflow, boosted),
        ("mlflow-hugging-face#Hugging Face", foreign.save_hugging_face, embedded),
    ],
)
def test_the_commands_of_a_page_serve_the_model_of_that_server(cluster, front, tmp_path, page, save, check):
    save(tmp_path)
    name, _, heading = page.partition("#")
    path = PAGES / f"{name}.md"
    text = section(path, heading) if heading else path.read_text("utf8")
    (script,) = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert "cluster-serving-init --from" in script and "curl" in script
    variables = addresses(cluster)
    try:
        done = in_shell(cluster.environment | variables, tmp_path, script, front.base_url)
        assert done.returncode == 0, done.stdout + done.stderr
        check(json.loads(done.stdout.splitlines()[-1]))
        assert_keys(text, tmp_path / "config.yaml")
    finally:
        with cluster.variables(**variables):
            stopped = cluster.run("cluster-serving-stop", cwd=tmp_path)
    assert stopped.returncode == 0, stopped.stderr


def addresses(cluster):
    """Variables for the Redis and the Flink of the tests, and for a start that measures nothing."""
    keys = {
        "REDIS_URL": f"127.0.0.1:{cluster.redis_port}",
        "FLINK_REST_URL": cluster.rest.removeprefix("http://"),
        "MODEL_PARALLELISM": "1",
        "THREAD_PER_MODEL": "1",
        "MAX_BATCH_SIZE": "16",
    }
    return {f"CLUSTER_SERVING_{key}": value for key, value in keys.items()}


def in_shell(environment, folder, script, url):
    """Run a script, with the front end of the tests in place of the usual one."""
    script = script.replace("cluster-serving-start --http", "cluster-serving-start")
    script = script.replace("localhost:10020", f"{url.host}:{url.port}")
    environment = environment | {"PATH": f"{BIN}:{environment['PATH']}"}
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def assert_keys(page, config):
    """The file has the keys that the page shows behind its name."""
    (shown,) = re.findall(r" config\.yaml +# (.*)$", page, re.MULTILINE)
    written = config.read_text()
    for key in shown.split(", "):
        name, _, value = key.partition(": ")
        assert re.search(rf'^{name}: "?{value}"?$', written, re.MULTILINE), key
