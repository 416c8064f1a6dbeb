"""The pages for users of other servers: theirs runs, ours runs, and both give the same answer."""

import os
import re
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
from onnx import helper
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from tests.support.fixtures.pages import DOCS, blocks, section, write_files
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo
from tests.support.worlds.environments import ROOT, python_with

PAGES = DOCS / "coming-from"
ANSWER = "setosa"
RUNTIME = "onnxruntime>=1.21,<2"

pytestmark = pytest.mark.timeout(900)

# Each environment has up to a gigabyte.
installs = pytest.mark.skipif(
    not os.environ.get("CLUSTER_SERVING_TEST_PEERS"), reason="CLUSTER_SERVING_TEST_PEERS is not set: CONTRIBUTING.md"
)


@pytest.fixture
def iris(tmp_path):
    """The file `iris.onnx` of the pages."""
    model = LogisticRegression(max_iter=1000).fit(*load_iris(return_X_y=True))
    weights = {"w": model.coef_.T.astype("f4"), "b": model.intercept_.astype("f4")}
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["z"]), helper.make_node("Softmax", ["z"], ["probabilities"])]
    model_zoo.save_onnx(
        tmp_path / "saved", nodes, {"x": ("FLOAT", ["n", 4])}, {"probabilities": ("FLOAT", ["n", 3])}, weights
    )
    shutil.move(tmp_path / "saved" / "model.onnx", tmp_path / "iris.onnx")


@pytest.mark.usefixtures("iris")
@pytest.mark.parametrize("name", ["bentoml-litserve", "ray-serve", "celery"])
def test_ours_answers(follower, name):
    follower.follow(section(PAGES / f"{name}.md", "Ours"))


@installs
@pytest.mark.usefixtures("iris")
@pytest.mark.parametrize(
    ("name", "heading", "peer"),
    [
        ("bentoml-litserve", "Yours, with BentoML", "bentoml"),
        ("bentoml-litserve", "Yours, with LitServe", "litserve"),
        ("ray-serve", "Yours", "ray_serve"),
    ],
)
def test_theirs_answers(tmp_path, name, heading, peer):
    port = str(free_port())
    # `serve run` takes no port.
    taken = () if peer == "ray_serve" else ("3000", "8000")

    def here(text):
        for number in taken:
            text = re.sub(rf"(localhost:|--port |port=){number}", rf"\g<1>{port}", text)
        return text

    requirements = ROOT / "bench" / "peers" / peer / "requirements.txt"
    python = python_with(f"peer-{peer}", ("-r", str(requirements), RUNTIME))
    text = section(PAGES / f"{name}.md", heading)
    write_files(text, tmp_path, here)
    server, request = [here(block) for language, _, block in blocks(text) if language == "sh"]
    with running(server, tmp_path, python, BENTOML_HOME=str(tmp_path)):
        wait_until(lambda: ANSWER in shell(request, tmp_path, python), 240)


@installs
@pytest.mark.usefixtures("iris")
def test_celery_answers(tmp_path, redis_server):
    python = python_with("peer-celery", ("celery[redis]>=5.4,<6", "numpy<3", RUNTIME))
    text = section(PAGES / "celery.md", "Yours")
    write_files(text, tmp_path, lambda block: block.replace("localhost:6379", f"localhost:{redis_server.port}"))
    worker, program = [block for language, _, block in blocks(text) if language == "sh"]
    with running(worker, tmp_path, python):
        assert ANSWER in shell(program, tmp_path, python)


@contextmanager
def running(command, folder, python, **environment):
    """The program of another environment while it runs, with all of its processes."""
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=variables(python) | environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)


def shell(command, folder, python):
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=variables(python), capture_output=True, text=True, check=False
    ).stdout


def variables(python):
    others = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    quiet = {"BENTOML_DO_NOT_TRACK": "true", "RAY_USAGE_STATS_ENABLED": "0"}
    return others | quiet | {"PATH": f"{Path(python).parent}:{os.environ['PATH']}"}


def test_the_original_program_runs_as_it_is(follower):
    page = PAGES / "analytics-zoo.md"
    x, labels = model_zoo.digits_data()
    digit = np.round(x[labels == 3][0].reshape(8, 8) * 255).astype("u1").repeat(8, 0).repeat(8, 1)
    cv2.imwrite(str(follower.folder / "digit.png"), digit)
    model_zoo.save_openvino_digit_images(follower.folder / "model")
    write_files(section(page, "Yours"), follower.folder, follower.here)
    follower.follow(section(page, "Ours, with the same files"))
    follower.follow(section(page, "Ours, with our client"))
