"""What a program written for the original's client finds: the same with that client, unmodified, and with ours."""

import base64
import hashlib
import json
import os

import cv2
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cluster_serving.client import OutputQueue
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.original import arrow as original_arrow
from cluster_serving.protocol.results import encode_error, encode_ranked, encode_rows
from tests.support.payloads import model_zoo
from tests.support.programs.originals import ORIGINALS, OURS, digit_pixels

# OpenVINO computes in bfloat16 on the CPUs that have it.
TOLERANCE = 0.02


def digit(number):
    return model_zoo.digits_data()[0][number]


def probabilities(*numbers):
    return model_zoo.digits_mlp(model_zoo.digits_data()[0][list(numbers)])


def test_tensors_are_answered_and_stay_until_they_are_deleted(run, digits):
    found = run(
        *digits,
        """
        requests.enqueue("kept", x=np.array(given["x"]))
        answers["first"] = wait("kept")
        answers["second"] = results.query("kept")
        answers["taken"] = results.query_and_delete("kept")
        answers["gone"] = results.query("kept")
        answers["never"] = results.query("no such request")
        """,
        x=digit(0).tolist(),
    )
    for name in ("first", "second", "taken"):
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], probabilities(0)[0], atol=TOLERANCE)
    assert (found["gone"], found["never"]) == ("[]", "[]")


def test_programs_may_write_and_read_the_fields_of_redis_themselves(run, digits):
    found = run(
        *digits,
        """
        fields = {"uri": "own", "data": requests.data_to_b64(x=np.array(given["x"]))}
        requests.db.xadd(requests.name, fields)
        answers["waited"] = wait("own")
        value = results.db.hget("cluster-serving_" + results.name + ":own", "value")
        answers["read"] = results.get_ndarray_from_b64(value)
        results.query_and_delete("own")
        answers["text"] = requests.base64_encode_image(b"image")
        """,
        x=digit(0).tolist(),
    )
    np.testing.assert_array_equal(found["read"], found["waited"])
    np.testing.assert_allclose(found["read"], probabilities(0)[0], atol=TOLERANCE)
    assert found["text"] == "aW1hZ2U="


def test_predict_takes_json_and_dicts_and_single_values(run, digits):
    found = run(
        *digits,
        """
        x = given["x"]
        answers["dict"] = requests.predict({"x": np.array(x)})
        answers["json"] = requests.predict(json.dumps({"instances": [{"x": x}]}))
        answers["value"] = requests.predict(np.array(x))
        """,
        x=digit(1).tolist(),
    )
    for answer in found.values():
        np.testing.assert_allclose(answer, probabilities(1)[0], atol=TOLERANCE)


def test_a_failed_request_is_nan_and_dequeue_empties_the_queue(run, digits, cluster_db):
    found = run(
        *digits,
        """
        for number, x in enumerate(given["digits"]):
            requests.enqueue(f"digit-{number}", x=np.array(x))
        requests.enqueue("bad", x=np.zeros(3))
        for uri in ("digit-0", "digit-1", "digit-2", "bad"):
            wait(uri)
        answers["failed"] = results.query("bad")
        answers["all"] = results.dequeue()
        answers["nothing"] = results.dequeue()
        """,
        digits=[digit(number).tolist() for number in range(3)],
    )
    assert found["failed"] == found["all"].pop("bad") == "NaN"
    assert sorted(found["all"]) == ["digit-0", "digit-1", "digit-2"]
    for number in range(3):
        np.testing.assert_allclose(found["all"][f"digit-{number}"], probabilities(number)[0], atol=TOLERANCE)
    assert found["nothing"] == {}
    assert not list(cluster_db.scan_iter(match="cluster-serving_compat-digits:*"))


def test_an_input_that_is_already_batched_keeps_its_batch(run, digits):
    found = run(
        *digits,
        """
        answers["two"] = requests.predict({"x": np.array(given["x"])})
        """,
        x=[digit(0).tolist(), digit(1).tolist()],
    )
    np.testing.assert_allclose(found["two"], probabilities(0, 1), atol=TOLERANCE)


def test_images_of_every_form_are_answered(run, images, tmp_path):
    pixels, labels = digit_pixels(6)
    forms = []
    for number, image in enumerate(pixels):
        path = tmp_path / f"{number}.png"
        cv2.imwrite(str(path), image)
        forms.append([str(path), base64.b64encode(path.read_bytes()).decode(), cv2.imread(str(path)).tolist()])
    found = run(
        *images,
        """
        for number, (path, text, pixels) in enumerate(given["forms"]):
            requests.enqueue(f"{number} text", image=path)
            requests.enqueue(f"{number} path", image={"path": path})
            requests.enqueue(f"{number} b64", image={"b64": text})
            requests.enqueue(f"{number} pixels", image={"path": np.array(pixels, "uint8")})
            for form in ("text", "path", "b64", "pixels"):
                answers[f"{number} {form}"] = wait(f"{number} {form}")
        """,
        forms=forms,
    )
    for number, label in enumerate(labels):
        expected = model_zoo.digits_mlp(pixels[number, ::4, ::4].reshape(1, 64) / np.float32(255))[0]
        assert expected.argmax() == label
        np.testing.assert_allclose(found[f"{number} b64"], expected, atol=TOLERANCE)
        for form in ("text", "path", "pixels"):
            # The original client sends these as JPEG, which loses something.
            np.testing.assert_allclose(found[f"{number} {form}"], expected, atol=0.1)


def sealed(content):
    """Text that the original's `encrypt_with_AES_GCM(content, "secret", "salt")` gives."""
    iv, key = os.urandom(12), hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 65_536, 128 // 8)
    return base64.b64encode(iv + AESGCM(key).encrypt(iv, content, None)).decode()


def test_encrypted_images_are_answered(run, encrypted_images, tmp_path):
    pixels, labels = digit_pixels(1)
    image = cv2.imencode(".png", pixels[0])[1].tobytes()
    found = run(
        *encrypted_images,
        """
        for name, text in given.items():
            requests.enqueue(name, image={"b64": text})
        for name in given:
            answers[name] = wait(name)
        """,
        file=sealed(image),
        text=sealed(base64.b64encode(image)),  # as the original's benchmark does
        open=base64.b64encode(image).decode(),
    )
    assert found["file"].argmax() == found["text"].argmax() == labels[0]
    assert found["open"] == "NaN"


def test_filtered_results_are_an_array_of_class_and_value(run, ranked_images, cluster_db):
    pixels, labels = digit_pixels(2)
    found = run(
        *ranked_images,
        """
        for number, image in enumerate(given["images"]):
            requests.enqueue(f"image {number}", image={"path": np.array(image, "uint8")})
            answers[f"query {number}"] = wait(f"image {number}")
        answers["all"] = results.dequeue()
        """,
        images=pixels.tolist(),
    )
    for number, label in enumerate(labels):
        ranking = found[f"query {number}"]
        assert ranking.shape == (3, 2)
        assert ranking[0, 0] == label
        assert ranking[0, 1] > ranking[1, 1] > ranking[2, 1]
        np.testing.assert_array_equal(found["all"][f"image {number}"], ranking)


def test_our_client_reads_what_an_original_client_asked_for(ranked_images, cluster_db):
    port, job = ranked_images
    pixels, labels = digit_pixels(1)
    encoded = base64.b64encode(cv2.imencode(".png", pixels[0])[1].tobytes()).decode()
    body = json.dumps({"instances": [{"image": encoded}]})
    cluster_db.xadd(job, {"uri": "asked", "data": body, "serde": "stream"})
    with OutputQueue(port=port, name=job) as results:
        ranking = results.query_and_delete("asked", timeout=30)
    assert ranking[0][0] == labels[0]
    assert len(ranking) == 3


def test_strings_reach_the_model(run, words):
    found = run(
        *words,
        """
        requests.enqueue("strings", words=["come", "on", "united"])
        answers["lengths"] = wait("strings")
        """,
    )
    assert found["lengths"].tolist() == [4, 2, 6]


def test_several_dense_and_sparse_inputs_give_several_outputs(run, mixed):
    found = run(
        *mixed,
        """
        sparse = [np.array([[0, 1, 5], [3, 4, 6]]), np.array([0.5, 1.5, 2.5]), np.array([6, 7])]
        requests.enqueue("mixed", a=np.array([1.5, 2]), b=np.array([[1, 2], [3, 4]]), c=sparse)
        answers["outputs"] = wait("mixed")
        answers["dense"] = requests.predict({"a": np.array([0, -1]), "b": np.zeros((2, 2)), "c": np.ones((6, 7))})
        """,
    )
    doubled, total, rows = found["outputs"]
    assert doubled.tolist() == [3, 4]
    assert total.tolist() == 10
    assert rows.tolist() == [0.5, 1.5, 0, 0, 0, 2.5]
    assert [output.tolist() for output in found["dense"]] == [[0, -2], 0, [7] * 6]


SHAPES = [(), (1,), (3,), (1, 5), (1, 1), (2, 1, 1), (1, 1, 2), (1, 1, 1, 3, 1), (4, 2, 3)]


def test_results_of_every_shape_can_be_read(run, redis_server, db, job):
    for shape in SHAPES:
        value = original_arrow.encode_result([np.arange(np.prod(shape, dtype=int)).reshape(shape)])
        db.hset(JobKeys(job).result(str(list(shape))), "value", value)
    found = run(
        redis_server.port,
        job,
        """
        for shape in given["shapes"]:
            answers[str(shape)] = results.query_and_delete(str(shape))
        """,
        shapes=SHAPES,
    )
    for shape in SHAPES:
        array = found[str(list(shape))]
        assert array.ravel().tolist() == list(range(array.size))
        # Sizes of 1 that do not fit are lost, as the encoding has no room for more sizes than elements.
        assert [size for size in array.shape if size != 1] == [size for size in shape if size != 1]
        assert array.shape == shape or len(shape) > array.size


def test_all_that_our_job_writes_can_be_dequeued(run, redis_server, db, job):
    ranking = [(3, 0.75), (0, 0.125)]
    written = {
        "topN": encode_ranked(False, ["y"], [ranking]),
        "topN(1)": encode_ranked(False, ["y"], [ranking[:1]]),
        "topN of two outputs": encode_ranked(False, ["y", "z"], [ranking, ranking]),
        "pickTopN": encode_rows(False, ["y"], [np.eye(2)]),
        "error": encode_error(InvalidInput("what was wrong")),
    }
    for uri, fields in written.items():
        db.hset(JobKeys(job).result(uri), mapping=fields)
    found = run(redis_server.port, job, "answers.update(results.dequeue())")
    assert sorted(found) == sorted(written)
    assert found["topN"].tolist() == [[3, 0.75], [0, 0.125]]
    assert found["topN(1)"].tolist() == [[3, 0.75]]
    assert [ranking.tolist() for ranking in found["topN of two outputs"]] == [[[3, 0.75], [0, 0.125]]] * 2
    assert found["pickTopN"].tolist() == [[1, 0], [0, 1]]
    assert found["error"] == "NaN"


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize("client", ORIGINALS[:1], indirect=True)
def test_a_uri_of_any_length_is_answered(run, redis_server, job):
    body = """
        for uri in ("", "x" * 5000):
            requests.enqueue(uri, x=np.zeros(1))
            answers[uri] = wait(uri)
        """
    assert run(redis_server.port, job, body) == {"": "NaN", "x" * 5000: "NaN"}


@pytest.mark.parametrize("client", ORIGINALS[:1], indirect=True)
def test_what_is_queued_before_the_first_start_is_answered(run, started, cluster, tmp_path):
    """The original client makes the group at the end of the stream, behind what it has queued."""
    name = "compat-early"
    body = """
        requests.enqueue("early", x=np.array(given["x"]))
        results = OutputQueue(port=port, name=job)
        """
    run(cluster.redis_port, name, body, x=digit(2).tolist())
    model_zoo.save_openvino_digits(tmp_path / "model")
    started(jobName=name, modelPath=tmp_path / "model")
    found = run(cluster.redis_port, name, 'answers["early"] = wait("early")')
    np.testing.assert_allclose(found["early"], probabilities(2)[0], atol=TOLERANCE)


@pytest.mark.parametrize("client", [OURS], indirect=True)
def test_our_client_also_mends_what_the_original_cannot(run, mixed, images):
    found = run(
        *mixed,
        """
        requests.enqueue("a:b", a=np.array([1, 2]), b=np.zeros((2, 2)), c=np.zeros((6, 7)))
        wait("a:b")
        answers.update(results.dequeue())
        started = time.time()
        answers["late"] = InputQueue(port=port, name="no such job").predict({"x": np.zeros(1)}, timeout=0.1)
        answers["seconds"] = time.time() - started
        InputQueue("127.0.0.1", port, sync=True)
        """,
    )
    assert found["a:b"][0].tolist() == [2, 4]
    assert found["late"] == "[]"
    assert found["seconds"] < 1


def test_the_original_encoding_has_no_place_for_an_empty_output():
    with pytest.raises(InvalidInput, match=r"\[0, 4\] is empty"):
        original_arrow.encode_result([np.zeros((0, 4))])
