"""Requests that are queued now and asked for later."""

import json
import threading

import httpx
import pytest

from cluster_serving.connectors.slot.answer import Answer, write_answers
from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.frontend.api.requests import routes
from cluster_serving.frontend.server.admission.keys import new_key
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import encode_result
from tests.support.fixtures.echo import answering, echoed

INSTANCES = [{"x": [1, 2]}, {"x": [3, 4]}]
PREDICTIONS = [{"value": [1, 2]}, {"value": [3, 4]}]


def submit(url, **more):
    response = httpx.post(f"{url}/v1/requests", json={"instances": INSTANCES, **more}, timeout=30)
    assert response.status_code == 202, response.text
    assert response.json()["status"] == "pending"
    return f"{url}{response.headers['location']}"


@pytest.mark.usefixtures("vectors")
def test_any_front_end_answers_for_a_request_as_often_as_asked(serve, echo, job):
    place = submit(serve().url, model=job)
    elsewhere = place.replace(place.partition("/v1/")[0], serve().url)
    for _ in range(2):
        answer = httpx.get(f"{elsewhere}?wait=30", timeout=60).json()
        fields = {"id": place.rpartition("/")[2], "status": "done", "version": "1"}
        assert answer == fields | {"predictions": PREDICTIONS}


@pytest.mark.usefixtures("vectors", "echo")
def test_results_of_many_instances_come_in_their_order(serve):
    instances = [{"x": [index]} for index in range(170)]
    place = submit(serve().url, instances=instances)
    predictions = httpx.get(f"{place}?wait=30", timeout=60).json()["predictions"]
    assert predictions == [{"value": instance["x"]} for instance in instances]
    assert httpx.get(place, timeout=60).json()["predictions"] == predictions


@pytest.mark.parametrize("sizes", [[1], [1, 2]])
def test_instances_share_entries_and_are_answered_one_by_one(serve, db, job, report, sizes):
    report(("x", "float32", (None, None)), columns=True, max_batch_size=8)
    url = serve().url
    instances = [{"x": [float(index)] * sizes[index % len(sizes)]} for index in range(20)]
    place, cancelled = submit(url, instances=instances), submit(url, instances=instances)
    entries = 3 if sizes == [1] else 4
    assert db.xlen(job) == 2 * entries
    pending = httpx.get(place, timeout=30).json()
    assert (pending["answered"], pending["instances"]) == (0, 20)
    assert httpx.delete(cancelled).status_code == 204
    assert db.xlen(job) == entries
    with answering(db, job, echoed):
        predictions = httpx.get(f"{place}?wait=30", timeout=60).json()["predictions"]
    assert predictions == [{"value": instance["x"]} for instance in instances]
    told = httpx.get(f"{place}/events", timeout=60).text
    found = [json.loads(line[6:]) for line in told.splitlines() if line.startswith('data: {"index"')]
    assert sorted((each["index"], each["prediction"]["value"]) for each in found) == [
        (index, instance["x"]) for index, instance in enumerate(instances)
    ]
    assert httpx.delete(place).status_code == 204
    assert not list(db.scan_iter(f"*{place.rpartition('/')[2][:32]}*"))


@pytest.mark.usefixtures("vectors")
def test_what_is_not_answered_yet_is_pending_and_can_be_cancelled(serve, db, job):
    place = submit(serve().url)
    pending = httpx.get(f"{place}?wait=0.1", timeout=30).json()
    assert (pending["status"], pending["answered"], pending["instances"]) == ("pending", 0, 2)
    assert pending["position"] == 0
    assert db.xlen(job) == 2
    assert httpx.delete(place).status_code == 204
    assert db.xlen(job) == 0
    for response in (httpx.get(place), httpx.delete(place), httpx.get(f"{place}/events")):
        assert (response.status_code, response.json()["code"]) == (404, "REQUEST_NOT_FOUND")
    secret = place.rpartition("/")[2][:32]
    assert not list(db.scan_iter(f"*{secret}*"))


@pytest.mark.usefixtures("vectors")
def test_a_request_belongs_to_the_key_that_made_it(serve, tmp_path):
    file = tmp_path / "keys"
    made = [new_key(name) for name in ("alice", "bob")]
    file.write_text("".join(f"{line}\n" for _, line in made))
    alice, bob = ({"x-api-key": key} for key, _ in made)
    with httpx.Client(base_url=serve(f"--apiKeysFile={file}").url, timeout=30) as ask:
        place = ask.post("/v1/requests", json={"instances": INSTANCES}, headers=alice).headers["location"]
        for method, path in (("GET", place), ("GET", f"{place}/events"), ("DELETE", place)):
            refused = ask.request(method, path, headers=bob)
            assert (refused.status_code, refused.json()["code"]) == (404, "REQUEST_NOT_FOUND")
        assert ask.get(place, headers=alice).json()["status"] == "pending"
        assert ask.delete(place, headers=alice).status_code == 204


@pytest.mark.usefixtures("vectors")
def test_several_may_wait_for_the_same_request(serve, request):
    place = submit(serve().url)
    answers = []

    def wait():
        answers.append(httpx.get(f"{place}?wait=30", timeout=60).json()["status"])

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    request.getfixturevalue("echo")
    for thread in threads:
        thread.join()
    assert answers == ["done"] * 3


@pytest.mark.usefixtures("vectors", "echo")
def test_events_come_as_instances_are_answered(serve):
    place = submit(serve().url)
    with httpx.stream("GET", f"{place}/events", timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [block.split("\n") for block in "".join(response.iter_text()).strip().split("\n\n")]
    assert [event for event, _ in events] == ["event: prediction"] * 2 + ["event: done"]
    found = [json.loads(data.removeprefix("data: ")) for _, data in events[:-1]]
    assert sorted(found, key=lambda one: one["index"]) == [
        {"index": index, "version": "1", "prediction": prediction} for index, prediction in enumerate(PREDICTIONS)
    ]


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"instances": [{"x": [1]}, {"x": "no image"}]}, 400),
        ({"instances": [{"x": [1]}], "model": 3}, 400),
        ({"instances": [{"x": [1]}], "model": "other"}, 404),
        ({"instances": [{"x": [1]}], "version": [1]}, 400),
        ({"instances": [{"x": [1]}], "callback": "ftp://host/"}, 400),
        ({"instances": [{"x": [1]}], "callback": "http://[/"}, 400),
        ({"instances": [{"x": [1]}], "callback": "http://127.0.0.1:9/" + "a" * 2048}, 400),
        ({"instances": [{"x": [1]}], "callback": "http://127.0.0.1:9/"}, 403),
        ({}, 400),
    ],
)
def test_what_cannot_be_queued_is_refused_and_nothing_is(serve, db, job, body, status):
    response = httpx.post(f"{serve('--callbackHosts=host').url}/v1/requests", json=body)
    assert response.status_code == status
    assert db.xlen(job) == 0


@pytest.mark.usefixtures("vectors")
def test_events_of_a_cancelled_request_end_with_an_error(serve, monkeypatch):
    monkeypatch.setattr(routes, "_CHECK_EVERY", 0.5)
    place = submit(serve().url)
    with httpx.stream("GET", f"{place}/events", timeout=60) as response:
        assert httpx.delete(place).status_code == 204
        event, data = "".join(response.iter_text()).strip().split("\n")
    assert event == "event: error"
    assert json.loads(data.removeprefix("data: "))["code"] == "REQUEST_NOT_FOUND"


def test_nobody_waits_for_a_request_that_there_is_not(serve):
    front = serve()
    assert httpx.get(f"{front.url}/v1/requests/{'0' * 32}-1000-other?wait=300", timeout=30).status_code == 404
    assert front.front.dispatch.dispatcher("other").waiting == 0


@pytest.mark.parametrize("text", ["x", "0" * 32 + "-1-other", "0" * 32 + "-999999-other", "0" * 32 + "-1-a*"])
def test_an_id_that_is_none_is_404(serve, text):
    url = f"{serve().url}/v1/requests/{text}"
    assert httpx.get(url).status_code == 404
    assert httpx.get(f"{url}?wait=x").status_code in (400, 404)


@pytest.mark.usefixtures("vectors", "echo")
def test_an_id_with_another_number_of_instances_is_unknown(serve):
    place = submit(serve().url)
    assert httpx.get(place.replace("-2-", "-3-")).status_code == 404
    assert httpx.get(place).status_code == 200


@pytest.mark.usefixtures("vectors")
def test_an_expired_result_is_not_pending(serve, db, job):
    place = submit(serve().url)
    create_group(db, job)
    first, second = StreamReader(db, job, "test-0", claim_idle_ms=60_000).read(10, block_ms=5000)
    fields = encode_result(True, ["x"], list(first.decode()[1].values()))
    write_answers(db, job, 60, [Answer(first, fields)])
    assert httpx.get(place).json()["answered"] == 1
    db.delete(JobKeys(job).native_result(first.uri))
    # The other one is being computed, so only the first tells.
    assert httpx.get(f"{place}?wait=60", timeout=30).status_code == 404
    with httpx.stream("GET", f"{place}/events", timeout=30) as response:
        assert response.status_code == 404
    write_answers(db, job, 60, [Answer(second, fields)])
    assert httpx.get(place).json()["code"] == "REQUEST_NOT_FOUND"


@pytest.mark.usefixtures("vectors")
def test_priorities_have_streams_of_their_own_and_are_cancelled_there(serve, db, job):
    url = serve().url
    body = {"instances": INSTANCES}
    queued = httpx.post(f"{url}/v1/requests", json=body, headers={"x-priority": "low"})
    assert queued.status_code == 202
    assert (db.xlen(job), db.xlen(f"{job}:low")) == (0, 2)
    assert httpx.delete(f"{url}{queued.headers['location']}").status_code == 204
    assert db.xlen(f"{job}:low") == 0
    for path in ("/v1/requests", "/predict"):
        wrong = httpx.post(f"{url}{path}", json=body, headers={"x-priority": "urgent"})
        assert (wrong.status_code, wrong.json()["code"]) == (400, "INVALID_INPUT")


def test_a_queued_request_may_have_a_deadline(serve, db, job):
    url = serve(f"--models={job}").url
    body = {"instances": [{"x": 1.0}]}
    for headers in ({}, {"x-timeout-ms": "1500"}, {"x-timeout-ms": "86400000"}):
        assert httpx.post(f"{url}/v1/requests", json=body, headers=headers).status_code == 202
    assert [fields.get(b"deadline") for _, fields in db.xrange(job)] == [None, b"1500", b"86400000"]
    for wrong in ("abc", "0", "-1", "inf"):
        refused = httpx.post(f"{url}/v1/requests", json=body, headers={"x-timeout-ms": wrong})
        assert refused.status_code == 400
        assert "X-Timeout-Ms" in refused.json()["error"]
    assert db.xlen(job) == 3


@pytest.mark.usefixtures("vectors")
def test_the_status_of_a_request_tells_how_many_are_ahead(serve, db, job):
    url = serve().url

    def queued(priority):
        answer = httpx.post(f"{url}/v1/requests", json={"instances": INSTANCES}, headers={"x-priority": priority})
        return f"{url}{answer.headers['location']}"

    def position(place):
        return httpx.get(place, timeout=30).json()["position"]

    first, second, low = queued("normal"), queued("normal"), queued("low")
    assert list(map(position, (first, second, low))) == [0, 2, 4]
    high = queued("high")
    assert list(map(position, (high, first, second, low))) == [0, 2, 4, 6]
    assert httpx.delete(first).status_code == 204
    assert list(map(position, (high, second, low))) == [0, 2, 4]


@pytest.mark.usefixtures("vectors")
def test_a_long_queue_is_counted_up_to_a_thousand(serve, db, job):
    for _ in range(1200):
        db.xadd(job, {"uri": "other", "data": b"x"})
    place = submit(serve().url)
    assert 1000 <= httpx.get(place, timeout=30).json()["position"] <= 1200
    db.delete(job)
    for _ in range(12):
        db.xadd(job, {"uri": "other", "data": bytes(1 << 20)})
    place = submit(serve().url)
    assert httpx.get(place, timeout=30).json()["position"] == 12
