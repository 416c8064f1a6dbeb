"""Requests that are queued now, and whose answers come in pieces: server-sent events."""

import json

import httpx
import pytest

from tests.support.fixtures.generating import generating
from tests.support.fixtures.waiting import wait_until

INSTANCES = [{"first": 5, "count": 3}, {"first": 20, "count": 2}]
ENDLESS = """
    import time

    class Handler:
        inputs = {"x": "float32"}

        def predict(self, batch):
            number = 0
            while True:
                yield {"y": [number] * len(batch["x"])}
                number += 1
                time.sleep(0.02)
    """


def submit(url, instances, **headers):
    body = {"instances": instances, "stream": True}
    response = httpx.post(f"{url}/v1/requests", json=body, headers=headers, timeout=30)
    assert response.status_code == 202, response.text
    return f"{url}{response.headers['location']}"


def events(response, most=1000):
    """Name, id and data of events."""
    found, event = [], {}
    for line in response.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        else:
            found.append((event["event"], event.get("id", ""), json.loads(event["data"])))
            event = {}
            if len(found) == most:
                break
    return found


def test_pieces_are_events_and_a_lost_connection_goes_on(redis_server, job, serve, tmp_path):
    with generating(redis_server.port, job, tmp_path):
        place = submit(serve().url, INSTANCES)
        with httpx.stream("GET", f"{place}/events", timeout=30) as response:
            all_events = events(response)
        pieces = [(data["index"], data["piece"]["number"]) for name, _, data in all_events if name == "piece"]
        assert [number for index, number in pieces if index == 0] == [5, 6, 7]
        assert [number for index, number in pieces if index == 1] == [20, 21]
        assert all_events[-1][0] == "done"
        # Any front end goes on at any event.
        elsewhere = place.replace(place.partition("/v1/")[0], serve().url)
        at = all_events[1][1]
        with httpx.stream("GET", f"{elsewhere}/events", headers={"last-event-id": at}, timeout=30) as response:
            again = events(response)
        # The pieces of several answers may come in another order.
        assert sorted(str(data) for _, _, data in again) == sorted(str(data) for _, _, data in all_events[2:])
        refused = httpx.get(f"{place}/events", headers={"last-event-id": "x"}, timeout=30)
        assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_INPUT")
        refused = httpx.get(place, timeout=30)
        assert refused.status_code == 400
        assert "read them at its path /events" in refused.json()["error"]


def test_the_stream_begins_with_the_submission_and_outlives_its_connection(redis_server, db, job, serve, tmp_path):
    url = serve().url
    with generating(redis_server.port, job, tmp_path, ENDLESS):
        body = {"instances": [{"x": 1}], "stream": True}
        with httpx.stream(
            "POST", f"{url}/v1/requests", json=body, headers={"accept": "text/event-stream"}, timeout=30
        ) as response:
            (name, _, data), *pieces = events(response, most=4)
        assert name == "request"
        assert [piece["piece"] for _, _, piece in pieces] == [0, 1, 2]
        place = f"{url}/v1/requests/{data['id']}"
        headers = {"last-event-id": pieces[-1][1]}
        with httpx.stream("GET", f"{place}/events", headers=headers, timeout=30) as response:
            assert [piece["piece"] for _, _, piece in events(response, most=3)] == [3, 4, 5]
        assert db.xlen(job) == 1
        with httpx.stream("GET", f"{place}/events", headers=headers, timeout=30) as response:
            assert httpx.delete(place, timeout=30).status_code == 204
            *_, (name, _, failed), (last, _, _) = events(response)
        assert (name, last) == ("error", "done")
        assert failed == {"index": 0, "error": "the request was cancelled", "code": "REQUEST_CANCELLED"}
        wait_until(lambda: not db.xlen(job))


def test_a_bad_record_is_an_event_of_an_error(redis_server, job, serve, tmp_path):
    with generating(redis_server.port, job, tmp_path):
        place = submit(serve().url, [{"first": 5, "count": -1}, {"first": 5, "count": 2}])
        with httpx.stream("GET", f"{place}/events", timeout=30) as response:
            *told, (last, _, _) = events(response)
        assert last == "done"
        ((name, _, data),) = [event for event in told if event[2]["index"] == 0]
        assert (name, data["code"]) == ("error", "INVALID_INPUT")
        assert "count is -1" in data["error"]
        *_, (name, _, piece) = [event for event in told if event[2]["index"] == 1]
        assert (name, piece["piece"]["number"]) == ("piece", 6)


@pytest.mark.parametrize("content", [{"stream": "yes"}, {"stream": True, "callback": "http://localhost/"}])
def test_a_stream_that_cannot_be_is_refused(redis_server, job, serve, tmp_path, content):
    with generating(redis_server.port, job, tmp_path):
        url = serve("--callbackHosts=localhost").url
        refused = httpx.post(f"{url}/v1/requests", json={"instances": INSTANCES, **content}, timeout=30)
        assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_INPUT")
