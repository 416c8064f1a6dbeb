"""Requests of other clients than the Python one of the last versions, on a real job."""

import base64
import json
import time

import cv2

from cluster_serving.client import original
from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.original import arrow as original_arrow
from tests.support.programs.originals import digit_pixels


def wait_for(db, key):
    deadline = time.monotonic() + 30
    while not (fields := db.hgetall(key)):
        assert time.monotonic() < deadline, f"no {key}"
        time.sleep(0.01)
    return fields


def test_json_of_the_http_front_end_is_answered(mixed, cluster_db):
    _, job = mixed
    # Sparse indices are read whichever way they lie.
    for uri, indices in {"rows": [[0, 1, 5], [3, 4, 6]], "pairs": [[0, 3], [1, 4], [5, 6]]}.items():
        sparse = {"shape": [6, 7], "data": [0.5, 1.5, 2.5], "indices": indices}
        body = json.dumps({"instances": [{"a": [1, 2], "b": [[1, 2], [3, 4]], "c": sparse}]})
        cluster_db.xadd(job, {"uri": uri, "data": body, "serde": "stream"})
        outputs = original_arrow.decode_result(wait_for(cluster_db, JobKeys(job).result(uri))[b"value"])
        assert [output.tolist() for output in outputs] == [[2, 4], 10, [0.5, 1.5, 0, 0, 0, 2.5]]


def test_json_that_cannot_be_read_is_nan_with_the_reason(mixed, cluster_db):
    _, job = mixed
    body = json.dumps({"instances": [{"a": "no picture!"}]})
    cluster_db.xadd(job, {"uri": "bad", "data": body, "serde": "stream"})
    refused = wait_for(cluster_db, JobKeys(job).result("bad"))
    assert refused[b"value"] == b"NaN"
    assert b"'a' is the text 'no picture!'" in refused[b"error"]


def test_clients_of_0_7_are_served_by_the_job_of_that_name(image_stream, cluster_db):
    pixels, labels = digit_pixels(3)
    for number, image in enumerate(pixels):
        encoded = base64.b64encode(cv2.imencode(".jpg", image)[1].tobytes())
        cluster_db.xadd("image_stream", {"uri": f"image:{number}", "image": encoded})
    cluster_db.xadd("image_stream", {"uri": "bad", "image": "no picture!"})
    for number, label in enumerate(labels):
        fields = wait_for(cluster_db, f"result:image:{number}")
        ranking = json.loads(fields[b"value"])
        assert len(ranking) == 3
        assert max(ranking, key=lambda name: float(ranking[name])) == str(label)
        assert cluster_db.ttl(f"result:image:{number}") > 0
    refused = wait_for(cluster_db, "result:bad")
    assert refused[b"value"] == b"NaN"
    assert refused[b"code"] == b"INVALID_INPUT"
    assert not list(cluster_db.scan_iter(match="cluster-serving_image_stream:*"))
    cluster_db.delete("result:bad", *(f"result:image:{number}" for number in range(3)))


def test_the_guide_of_0_7_works_with_our_client(image_stream, tmp_path):
    port, _ = image_stream
    pixels, labels = digit_pixels(2)
    cv2.imwrite(str(tmp_path / "image1.png"), pixels[0])
    requests, results = original.InputQueue(port=port), original.OutputQueue(port=port)
    requests.enqueue_image("my-image1", str(tmp_path / "image1.png"))
    requests.enqueue_image("my-image2", cv2.imread(str(tmp_path / "image1.png")))
    wait_for(results.db, "result:my-image1")
    wait_for(results.db, "result:my-image2")
    first = json.loads(results.query("my-image1"))
    assert max(first, key=lambda name: float(first[name])) == str(labels[0])
    assert {uri: json.loads(text) for uri, text in results.dequeue().items()} == {
        "my-image1": first,
        "my-image2": first,
    }
    assert results.query("my-image1") == "[]"


def test_later_clients_may_use_the_job_image_stream_too(image_stream):
    port, job = image_stream
    pixels, labels = digit_pixels(1)
    queue = original.InputQueue(port=port, name=job)
    answer = queue.predict({"image": {"path": pixels[0]}}, timeout=30)
    assert answer[0, 0] == labels[0]


def test_a_group_that_an_original_client_made_is_read_from_the_start(db, job):
    db.xadd(job, {"uri": "early", "data": b"x"})
    db.xgroup_create(job, GROUP)
    create_group(db, job)
    reader = StreamReader(db, job, "c", 60_000)
    assert [entry.uri for entry in reader.read(10, None)] == ["early"]
    # Whoever has read is left where it is.
    create_group(db, job)
    assert reader.read(10, None) == []
