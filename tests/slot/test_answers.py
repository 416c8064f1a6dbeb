"""Every record is answered with what the model gives for it alone, or with its own error."""

import json

import cv2
import numpy as np
import pytest

from cluster_serving.client import InferenceFailed, InvalidInput
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.original import arrow as original_arrow
from tests.support.fixtures.digits import TOLERANCE
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of the digits model."""
    folder = tmp_path_factory.mktemp("model")
    model_zoo.save_openvino_digits(folder)
    return folder


def test_images_are_decoded_resized_and_ranked(served, tmp_path):
    model_zoo.save_openvino_digit_images(tmp_path / "model")
    queue, _ = served(jobName="images", modelPath=tmp_path / "model", imageResize="8,8", postProcessing="topN(3)")
    x, labels = model_zoo.digits_data()
    pixels = np.round(x[:50].reshape(-1, 8, 8) * 255).astype("u1").repeat(4, 1).repeat(4, 2)
    right = 0
    for number, (image, label) in enumerate(zip(pixels, labels[:50], strict=True)):
        encoded = cv2.imencode(".png", image)[1].tobytes()
        path = tmp_path / f"{number}.png"
        path.write_bytes(encoded)
        result = queue.predict({"image": {"path": str(path)}} if number % 2 else {"image": encoded}, timeout=30)
        ranking = result.top_n
        assert len(ranking) == 3
        assert ranking[0][1] >= ranking[1][1] >= ranking[2][1]
        right += ranking[0][0] == label
    assert right >= 45
    with pytest.raises(InvalidInput, match="image"):
        queue.predict({"image": b"not an image"}, timeout=30)


def test_a_bad_record_is_told_why_and_its_neighbours_are_answered(model, served, db):
    queue, results = served(jobName="bad", modelPath=model, batchTimeout=50, greedyBatching=False)
    good = model_zoo.digits_data()[0]
    bad = {
        "shape": ({"x": np.zeros(63, "f4")}, r"x: float32\[64\]"),
        "missing": ({"x": good[0], "y": good[0]}, "2 inputs"),
        "text": ({"x": ["a", "b"]}, "x"),
        "image": ({"x": b"\xff\xd8 truncated"}, "image"),
    }
    for number in range(20):
        queue.enqueue(f"good-{number}", x=good[number])
        for name, (inputs, _) in bad.items():
            queue.enqueue(f"{name}-{number}", **inputs)
        db.xadd("bad", {"uri": f"garbage-{number}", "data": b"\x00\xff garbage"})
        db.xadd("bad", {"uri": f"empty-{number}"})
        db.xadd("bad", {"no": "uri"})
    for number in range(20):
        answer = results.query(f"good-{number}", timeout=30)
        np.testing.assert_allclose(answer, model_zoo.digits_mlp(good[number : number + 1])[0], atol=TOLERANCE)
        for name, message in {
            **{key: value[1] for key, value in bad.items()},
            "garbage": "base64",
            "empty": "data",
        }.items():
            with pytest.raises((InvalidInput, InferenceFailed), match=message):
                results.query(f"{name}-{number}", timeout=30)
    wait_until(lambda: db.xlen("bad") == 0 and db.xpending("bad", GROUP)["pending"] == 0)


def test_original_clients_are_answered_in_their_encoding(model, served, db):
    served(jobName="original", modelPath=model)
    digit = model_zoo.digits_data()[0][0]
    db.xadd("original", {"uri": "ok", "data": original_arrow.encode_request({"x": digit})})
    db.xadd("original", {"uri": "no", "data": original_arrow.encode_request({"x": digit[:3]})})
    ok, no = (JobKeys("original").result(uri) for uri in ("ok", "no"))
    wait_until(lambda: db.exists(ok, no) == 2)
    decoded = original_arrow.decode_result(db.hget(ok, "value"))[0]
    np.testing.assert_allclose(decoded, model_zoo.digits_mlp(digit[np.newaxis])[0], atol=TOLERANCE)
    assert db.hget(no, "value") == b"NaN"
    assert b"float32[64]" in db.hget(no, "error")


def test_filters_rank_for_both_kinds_of_client(model, served, db):
    queue, _ = served(jobName="ranked", modelPath=model, postProcessing="topN(2)")
    digit = model_zoo.digits_data()[0][0]
    expected = model_zoo.digits_mlp(digit[np.newaxis])[0]
    ranking = queue.predict({"x": digit}, timeout=30).top_n
    assert [index for index, _ in ranking] == np.argsort(-expected)[:2].tolist()
    db.xadd("ranked", {"uri": "text", "data": original_arrow.encode_request({"x": digit})})
    key = JobKeys("ranked").result("text")
    wait_until(lambda: db.exists(key))
    text = db.hget(key, "topN").decode()
    assert json.loads(text.replace("][", "],["))[0][0] == ranking[0][0]
