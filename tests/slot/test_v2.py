"""The v2 protocol in front of a job with a real model: images and tensors, over HTTP and gRPC."""

import json
import subprocess

import cv2
import grpc
import numpy as np
import pytest
import tritonclient.http as triton

from cluster_serving.frontend.proto import inference
from tests.support.fixtures.commands import BIN
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

COUNT = 20


@pytest.fixture
def addresses(served, redis_server, tmp_path):
    """HTTP and gRPC address of a front end, as users start it, of a job of digits as images."""
    model_zoo.save_openvino_digit_images(tmp_path)
    served(jobName="kserve", modelPath=tmp_path, imageResize="8,8")
    http, rpc = free_port(), free_port()
    options = [f"--redisPort={redis_server.port}", f"--port={http}", f"--grpcPort={rpc}", "--models=kserve"]
    front = subprocess.Popen([BIN / "cluster-serving-http", *options], stdout=subprocess.PIPE, text=True)
    try:
        assert f"grpc://127.0.0.1:{rpc}" in front.stdout.readline()
        yield f"127.0.0.1:{http}", f"127.0.0.1:{rpc}"
    finally:
        front.terminate()
        front.wait(30)
        front.stdout.close()
    assert front.returncode in (0, -15)


def statistics(client):
    (row,) = client.get_inference_statistics("kserve")["model_stats"]
    return row


def test_images_and_tensors_give_the_right_classes(addresses, tmp_path):
    x, labels = model_zoo.digits_data()
    pixels = np.round(x[:COUNT].reshape(-1, 8, 8) * 255).astype("u1")
    files = [cv2.imencode(".png", image.repeat(4, 0).repeat(4, 1))[1].tobytes() for image in pixels]
    expected = model_zoo.digits_mlp(x[:COUNT]).argmax(1)
    assert (expected == labels[:COUNT]).mean() > 0.8
    with triton.InferenceServerClient(addresses[0], network_timeout=60) as client:
        assert client.is_server_ready() and client.is_model_ready("kserve")
        metadata = client.get_model_metadata("kserve")
        name, output = metadata["inputs"][0]["name"], metadata["outputs"][0]["name"]
        images = triton.InferInput(name, [COUNT], "BYTES")
        images.set_data_from_numpy(np.array(files, object))
        best = triton.InferRequestedOutput(output, class_count=1)
        ranked = client.infer("kserve", [images], outputs=[best]).as_numpy(output)
        assert [int(item.rpartition(b":")[2]) for item in ranked.ravel()] == expected.tolist()

        assert metadata["inputs"][0]["shape"] == [-1, 3, 8, 8]
        tensor = triton.InferInput(name, [COUNT, 3, 8, 8], "FP32")
        tensor.set_data_from_numpy(np.stack([pixels] * 3, 1).astype("f4"))
        probabilities = client.infer("kserve", [tensor]).as_numpy(output)
        assert probabilities.argmax(1).tolist() == expected.tolist()
        with pytest.raises(triton.InferenceServerException, match="record 1: .*image") as raised:
            images.set_data_from_numpy(np.array([files[0], b"no image", *files[2:]], object))
            client.infer("kserve", [images])
        assert raised.value.status() == "400"

        # Canaries count, too; the job writes its totals once a second.
        wait_until(lambda: statistics(client)["inference_count"] >= 3 * COUNT - 1)
        row = statistics(client)
        assert row["inference_stats"]["fail"]["count"] == 1
        assert 0 < row["execution_count"] <= row["inference_count"] + 1
        counted = row["inference_count"] + 1
        for part in ("queue", "compute_infer", "compute_output"):
            assert row["inference_stats"][part]["count"] == counted
            assert row["inference_stats"][part]["ns"] > 0

    (tmp_path / "digit.png").write_bytes(files[0])
    body = """'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1],
      "parameters": {"content_type": "base64"}, "data": ["'$(base64 -w0 digit.png)'"]}]}'"""
    curl = ["bash", "-c", f"curl -sS {addresses[0]}/v2/models/kserve/infer -d {body}"]
    answer = json.loads(subprocess.run(curl, cwd=tmp_path, capture_output=True, check=True).stdout)
    assert np.argmax(answer["outputs"][0]["data"]) == expected[0]

    body = """'{"instances": [{"b64": "'$(base64 -w0 digit.png)'"}]}'"""
    curl = ["bash", "-c", f"curl -sS {addresses[0]}/v1/models/kserve:predict -d {body}"]
    answer = json.loads(subprocess.run(curl, cwd=tmp_path, capture_output=True, check=True).stdout)
    assert [np.argmax(values) for values in answer["predictions"]] == [expected[0]]

    request = inference.ModelInferRequest(model_name="kserve")
    tensor = request.inputs.add(name=name, datatype="BYTES", shape=[COUNT])
    tensor.contents.bytes_contents.extend(files)
    with grpc.insecure_channel(addresses[1]) as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            inference.ModelInferRequest.SerializeToString,
            inference.ModelInferResponse.FromString,
        )
        outputs = infer(request, timeout=60).outputs
    answers = np.array(outputs[0].contents.fp32_contents).reshape(outputs[0].shape)
    np.testing.assert_allclose(answers, probabilities, atol=0.02)
