"""A handler around a model: client, Redis, Flink, the user's code, and back."""

import httpx
import numpy as np
import pytest

from cluster_serving.client import InferenceFailed, InvalidInput
from cluster_serving.frontend import arguments
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures import both_modes
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.handled import write
from tests.support.payloads import model_zoo

HANDLER = """
    from cluster_serving.job.handlers import InvalidInput
    from names import NAMES

    class Handler:
        inputs = {"pixels": "uint8[8, 8]"}
        outputs = {"name": "str", "best": "str"}

        def preprocess(self, request):
            if not request["pixels"].any():
                raise InvalidInput("the image is black")
            return {"x": request["pixels"].reshape(64) / 255}

        def postprocess(self, result):
            ranking = result["probabilities"].argsort()[::-1].tolist()
            if ranking[0] == 7:
                raise RuntimeError("seven")
            return {"name": NAMES[ranking[0]], "best": [{"digit": digit} for digit in ranking[:2]]}
    """


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_handler_serves_a_model_and_a_changed_one_its_new_code(started, cluster, cluster_db, tmp_path, mode):
    model_zoo.save_openvino_digits(tmp_path)
    write(tmp_path, HANDLER)
    write(tmp_path, "NAMES = 'zero one two three four five six seven eight nine'.split()", "names.py")
    name = f"handled-{mode}"
    queue, _ = started(jobName=name, modelPath=tmp_path, executionMode=mode, modelParallelism=2)
    x, _ = model_zoo.digits_data()
    pixels = np.round(x * 255).astype("u1").reshape(-1, 8, 8)
    right = model_zoo.digits_mlp(x).argmax(1)
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    for image, digit in zip(pixels[:20], right, strict=False):
        if digit == 7:
            with pytest.raises(InferenceFailed, match="the handler failed in postprocess: RuntimeError: seven$"):
                queue.predict({"pixels": image}, timeout=30)
        else:
            result = queue.predict({"pixels": image}, timeout=30)
            assert result["name"].item() == names[digit]
            assert result["best"].item()[0] == {"digit": digit}
    with pytest.raises(InvalidInput, match="the image is black"):
        queue.predict({"pixels": pixels[0] * 0}, timeout=30)
    with pytest.raises(InvalidInput, match=r"pixels: uint8\[8, 8\]"):
        queue.predict({"pixels": pixels[0][:4]}, timeout=30)

    letters = [letter for _, letter in cluster_db.xrange(JobKeys(name).dead_letters)]
    assert len(letters) == (right[:20] == 7).sum() > 0
    assert b'handler.py", line' in letters[0][b"traceback"]

    if mode == "thread":
        assert_http_answers(cluster, name, pixels[0], names[right[0]])
        # The TaskManager's interpreter goes on, and has the modules of the first start.
        write(tmp_path, "NAMES = 'null eins zwei drei vier fünf sechs sieben acht neun'.split()", "names.py")
        restarted = cluster.restart(name)
        assert restarted.returncode == 0, restarted.stdout + restarted.stderr
        three = np.flatnonzero(right == 3)[0]
        assert queue.predict({"pixels": pixels[three]}, timeout=30)["name"].item() == "drei"


def test_requests_that_make_batches_fail_are_kept_from_those_of_other_callers(started, front, tmp_path):
    both_modes.failing_requests_are_apart(started, front, tmp_path, executionMode="process")


def assert_http_answers(cluster, job, image, name):
    """JSON documents are part of the answer over HTTP, and texts over v2."""
    front = Running(
        arguments.read([f"--redisUrl=redis://127.0.0.1:{cluster.redis_port}", "--port=0", "--grpcPort=0"], {})
    )
    body = {"instances": [{"pixels": image.tolist()}]}
    answer = httpx.post(f"{front.url}/models/{job}/predict", json=body, timeout=60).json()
    value = answer["predictions"][0]["value"]
    assert value["name"] == name
    assert value["best"][0].keys() == {"digit"}
    pixels = {"name": "pixels", "datatype": "UINT8", "shape": [1, 8, 8], "data": image.ravel().tolist()}
    answer = httpx.post(f"{front.url}/v2/models/{job}/infer", json={"inputs": [pixels]}, timeout=60).json()
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    assert outputs["name"] == [name]
    assert outputs["best"][0].startswith('[{"digit":')
    front.stop()
