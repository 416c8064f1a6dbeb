"""Results that are posted to an address of the client, whatever happens to the front ends meanwhile."""

import asyncio
import base64
import json
import logging
import os
import re
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from cluster_serving.frontend.api.requests import callback as callback_module
from cluster_serving.frontend.api.requests import delivery
from cluster_serving.frontend.errors import Forbidden
from cluster_serving.frontend.main import main
from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.frontend.models.leased_work import LeasedWork
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.dead_letters import DeadLetters, details, summary
from cluster_serving.protocol.asynchronous.callbacks import Callback, queue_of
from cluster_serving.protocol.asynchronous.leases import claimed
from cluster_serving.protocol.dead_letters import MAX_PAYLOAD_BYTES
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.scripts import call
from tests.support.fixtures.echo import Consumer
from tests.support.fixtures.front_end import launched
from tests.support.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("quick_turns")

INSTANCES = [{"x": [1, 2]}, {"x": [3, 4]}]
PREDICTIONS = [{"value": [1, 2]}, {"value": [3, 4]}]
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "asynchronous.md"


def submit(url, **more):
    response = httpx.post(f"{url}/v1/requests", json={"instances": INSTANCES, **more}, timeout=30)
    assert response.status_code == 202, response.text
    return f"{url}{response.headers['location']}"


class Receiver(BaseHTTPRequestHandler):
    """Answers what is posted with one status after the other, the last one as often as needed."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        statuses = self.server.statuses
        self.server.posts.append((dict(self.headers), body))
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.end_headers()

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture
def receiver():
    with HTTPServer(("127.0.0.1", 0), Receiver) as receiver:
        receiver.posts, receiver.statuses = [], [204]
        receiver.place = f"127.0.0.1:{receiver.server_port}"
        receiver.url = f"http://{receiver.place}/done"
        thread = threading.Thread(target=receiver.serve_forever, args=(0.01,))
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


@pytest.fixture
def letters(db, job):
    yield DeadLetters(db, job)
    db.delete(*[JobKeys(job).dead_letters, JobKeys(job).callbacks, JobKeys(job).callback_times])


def only(letters):
    """Id and content of the only dead letter, which is waited for."""
    wait_until(letters.all)
    (found,) = letters.all().items()
    return found


def nothing_left(db, job):
    return not db.exists(JobKeys(job).callbacks, JobKeys(job).callback_times)


@pytest.mark.usefixtures("vectors", "echo")
@pytest.mark.parametrize("not_now", [503, 429, 408])
def test_the_result_is_posted_to_a_host_that_is_allowed_until_it_takes_it(serve, db, job, receiver, not_now):
    receiver.statuses = [not_now, 204]
    place = submit(serve(f"--callbackHosts={receiver.place}").url, callback=receiver.url)
    wait_until(lambda: len(receiver.posts) == 2)
    (first, body), (second, repeated) = receiver.posts
    assert body == repeated
    content = json.loads(body)
    assert (content["model"], content["status"], content["predictions"]) == (job, "done", PREDICTIONS)
    # A receiver knows a repetition by its id.
    assert first["webhook-id"] == second["webhook-id"] == place.rpartition("/")[2][:32]
    assert "webhook-signature" not in first
    wait_until(lambda: nothing_left(db, job))
    assert httpx.get(place).json()["status"] == "done"


@pytest.mark.usefixtures("vectors", "echo")
@pytest.mark.parametrize("status", [302, 404])
def test_a_callback_that_is_refused_is_said_without_its_address(serve, letters, job, receiver, caplog, status):
    receiver.statuses = [status]
    submit(serve(f"--callbackHosts={receiver.place}").url, callback=f"{receiver.url}?token=hidden")

    def messages():
        return [record.getMessage() for record in caplog.records if record.name == delivery.__name__]

    # The letter comes before the line.
    wait_until(lambda: letters.all() and messages())
    expected = f"a result was not posted to 127.0.0.1: status {status}; see cluster-serving-cli dead list {job}"
    assert messages() == [expected]
    assert len(receiver.posts) == 1


@pytest.mark.usefixtures("vectors", "echo")
def test_a_callback_that_was_given_up_can_be_queued_again(serve, db, job, letters, receiver):
    receiver.statuses = [410]
    place = submit(serve(f"--callbackHosts={receiver.place}").url, callback=receiver.url)
    letter_id, letter = only(letters)
    shown = details(letter_id, letter)
    assert summary(letter_id, letter)["code"] == "CALLBACK_FAILED"
    assert (shown["uri"], shown["error"], shown["reply_to"]) == (place.rpartition("/")[2], "status 410", receiver.url)
    assert shown["inputs"] is None
    # The letter has the body, so the results are not needed any more.
    assert httpx.delete(place).status_code == 204
    receiver.statuses = [204]
    assert letters.requeue(letter_id) == shown["uri"]
    wait_until(lambda: len(receiver.posts) == 2)
    assert receiver.posts[0][1] == receiver.posts[1][1]
    assert receiver.posts[0][0]["webhook-id"] == receiver.posts[1][0]["webhook-id"]
    wait_until(lambda: nothing_left(db, job))
    assert letters.all() == {}
    with pytest.raises(LaunchError):
        letters.requeue(letter_id)


@pytest.mark.usefixtures("vectors", "echo")
def test_the_last_attempt_that_fails_leaves_a_dead_letter(serve, db, job, letters, receiver, monkeypatch):
    monkeypatch.setattr(delivery, "PAUSES", (0.0, 0.0))
    receiver.statuses = [503]
    submit(serve(f"--callbackHosts={receiver.place}").url, callback=receiver.url)
    _, letter = only(letters)
    assert (len(receiver.posts), letter.error) == (3, "status 503")
    assert nothing_left(db, job)


@pytest.mark.usefixtures("vectors")
def test_a_cancelled_request_has_no_callback_and_no_letter(serve, db, job, letters, receiver):
    place = submit(serve(f"--callbackHosts={receiver.place}").url, callback=receiver.url)
    assert not nothing_left(db, job)
    assert httpx.delete(place).status_code == 204
    assert nothing_left(db, job)
    with Consumer(f"redis://localhost:{db.get_connection_kwargs()['port']}", job):
        other = submit(serve(f"--callbackHosts={receiver.place}").url, callback=receiver.url)
        wait_until(lambda: receiver.posts)
    assert [headers["webhook-id"] for headers, _ in receiver.posts] == [other.rpartition("/")[2][:32]]
    assert letters.all() == {}


@pytest.mark.usefixtures("vectors")
def test_a_result_that_has_expired_leaves_a_dead_letter(serve, db, job, letters, receiver):
    front = serve(f"--callbackHosts={receiver.place}")
    place = submit(front.url, callback=receiver.url)
    front.stop()
    url = f"redis://localhost:{db.get_connection_kwargs()['port']}"
    secret = place.rpartition("/")[2][:32]
    with Consumer(url, job):
        wait_until(lambda: not db.xlen(job))
    db.delete(*(JobKeys(job).native_result(f"{secret}-{index}") for index in range(2)))
    serve(f"--callbackHosts={receiver.place}")
    _, letter = only(letters)
    assert letter.error == "there is no such request, or its result is no longer kept"
    assert not receiver.posts


@pytest.mark.usefixtures("vectors", "echo")
def test_a_host_is_checked_again_where_the_callback_is_posted(serve, db, job, letters, receiver, monkeypatch):
    """Whatever is in Redis, and whichever front end has put it there."""
    monkeypatch.setattr(delivery, "PAUSES", ())
    callback = Callback("0" * 32 + f"-1-{job}", receiver.url, job, body="{}")
    call(db, queue_of(job).put(callback.id, callback.content(), 0, new=True))
    serve("--callbackHosts=elsewhere")
    _, letter = only(letters)
    assert letter.error.startswith(f"results may not be posted to {receiver.place}, the host of 'callback': callback")
    assert not receiver.posts


def test_one_front_end_at_a_time_has_a_callback(db, job, letters):
    queue = queue_of(job)
    call(db, queue.put("a", b"content", 0, new=True))
    assert claimed(call(db, queue.claim(10))) == [("a", b"content")]
    assert claimed(call(db, queue.claim(10))) == []
    call(db, queue.put("a", b"changed", 0))
    assert claimed(call(db, queue.claim(10))) == [("a", b"changed")]
    # One that has ended does not come back.
    call(db, queue.put("b", b"content", 0))
    assert not db.hexists(JobKeys(job).callbacks, "b")


def test_a_front_end_claims_few_large_callbacks_at_a_time(db, job, letters):
    queue = queue_of(job)
    for item in "abc":
        call(db, queue.put(item, bytes(1 << 20), 0, new=True))
    assert [len(claimed(call(db, queue.claim(10)))) for _ in range(4)] == [1, 1, 1, 0]


@pytest.mark.usefixtures("vectors", "echo")
def test_few_bodies_are_kept_for_a_receiver_that_is_away(serve, db, job, letters, receiver, monkeypatch):
    monkeypatch.setattr(delivery, "_MOST_KEPT", 0)
    monkeypatch.setattr(delivery, "PAUSES", (0.0, 60.0))
    receiver.statuses = [503]
    submit(serve(f"--callbackHosts={receiver.place}").url, callback=receiver.url)
    wait_until(lambda: len(receiver.posts) == 2)
    (first, second) = (body for _, body in receiver.posts)
    assert first == second
    wait_until(lambda: [Callback.from_json(one).attempts for one in db.hvals(JobKeys(job).callbacks)] == [2])
    (kept,) = db.hvals(JobKeys(job).callbacks)
    assert Callback.from_json(kept).body == ""


@pytest.mark.usefixtures("vectors")
def test_callbacks_without_results_leave_room_for_others(serve, db, job, letters, receiver, monkeypatch):
    monkeypatch.setattr(delivery, "_MOST_HELD", 1)
    submit(serve(f"--callbackHosts={receiver.place}").url, callback=receiver.url)
    callback = Callback("0" * 32 + f"-1-{job}", receiver.url, job, body="{}")
    call(db, queue_of(job).put(callback.id, callback.content(), 0, new=True))
    wait_until(lambda: [body for _, body in receiver.posts] == [b"{}"])


@pytest.mark.usefixtures("vectors")
def test_a_receiver_that_does_not_answer_keeps_no_other_waiting(serve, db, job, letters, receiver, monkeypatch):
    monkeypatch.setattr(callback_module, "_TIMEOUT", 1000.0)
    with ExitStack() as opened:
        silent = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=100))
        url = f"http://localhost:{silent.getsockname()[1]}/done"
        for number in range(delivery._MOST_POSTED + 10):
            callback = Callback(f"{number:032x}-1-{job}", url, job, body="{}")
            call(db, queue_of(job).put(callback.id, callback.content(), 0, new=True))
        serve(f"--callbackHosts=localhost,{receiver.place}")
        # All that can be posted to the one is on its way.
        for _ in range(delivery._MOST_POSTED_TO_ONE):
            opened.enter_context(silent.accept()[0])
        callback = Callback("f" * 32 + f"-1-{job}", receiver.url, job, body="{}")
        call(db, queue_of(job).put(callback.id, callback.content(), 0, new=True))
        wait_until(lambda: [body for _, body in receiver.posts] == [b"{}"])


@pytest.mark.usefixtures("vectors", "echo")
def test_a_receiver_that_is_slow_in_small_steps_has_refused(serve, letters, receiver, monkeypatch):
    def dribble(handler):
        with suppress(OSError):
            for _ in range(100):
                handler.wfile.write(b"H")
                time.sleep(0.05)

    monkeypatch.setattr(Receiver, "do_POST", dribble)
    monkeypatch.setattr(callback_module, "_TIMEOUT", 0.3)
    monkeypatch.setattr(delivery, "PAUSES", ())
    submit(serve(f"--callbackHosts={receiver.place}").url, callback=receiver.url)
    _, letter = only(letters)
    assert letter.error == "TimeoutError"


@pytest.mark.usefixtures("vectors")
def test_a_request_whose_callback_cannot_be_kept_is_cancelled(serve, db, job, letters, receiver):
    url = serve(f"--callbackHosts={receiver.place}").url
    db.set(JobKeys(job).callback_times, "no sorted set")
    answer = httpx.post(f"{url}/v1/requests", json={"instances": INSTANCES, "callback": receiver.url})
    assert answer.status_code >= 500
    assert db.xlen(job) == 0


def test_work_goes_on_after_a_mistake_of_the_program(redis_server, job, caplog):
    looks = []

    async def jobs():
        looks.append(job)
        if len(looks) == 1:
            raise KeyError("a mistake")
        return [job]

    async def look_twice():
        dispatch = Dispatch(redis_server.url)
        work = LeasedWork(dispatch, queue_of, jobs, jobs, 1)
        work.start()
        while len(looks) < 2:
            await asyncio.sleep(0.05)
        await work.close()
        await dispatch.close()

    asyncio.run(asyncio.wait_for(look_twice(), 30))
    assert "queued work has failed" in caplog.text and "a mistake" in caplog.text


def test_a_large_body_is_not_kept_with_its_callback():
    assert Callback("a", "u", "m").failed(bytes(MAX_PAYLOAD_BYTES)).body == ""


@pytest.mark.usefixtures("vectors")
def test_a_front_end_that_is_killed_loses_no_callback(redis_server, serve, db, job, letters, receiver):
    receiver.statuses = [503] * 5 + [204]
    options = f"--callbackHosts={receiver.place}"
    process, url = launched(redis_server, job, options)
    with process:
        places = [submit(url, callback=receiver.url) for _ in range(20)]
        os.kill(process.pid, signal.SIGKILL)
    with Consumer(redis_server.url, job):
        wait_until(lambda: not db.xlen(job))
        serve(options)
        wait_until(lambda: nothing_left(db, job), 60)
    accepted = {headers["webhook-id"] for headers, _ in receiver.posts[5:]}
    assert accepted == {place.rpartition("/")[2][:32] for place in places}
    assert letters.all() == {}


@pytest.mark.usefixtures("vectors", "echo")
def test_a_front_end_that_ends_leaves_its_callbacks_to_the_next(serve, db, job, letters, receiver):
    options = f"--callbackHosts={receiver.place}"
    receiver.statuses = [503]
    first = serve(options)
    place = submit(first.url, callback=receiver.url)
    wait_until(lambda: receiver.posts)
    first.stop()
    receiver.statuses = [204]
    posts = len(receiver.posts)
    serve(options)
    wait_until(lambda: nothing_left(db, job))
    assert {headers["webhook-id"] for headers, _ in receiver.posts[posts:]} == {place.rpartition("/")[2][:32]}


def verify():
    """The function of the page with which receivers verify."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf8"), re.DOTALL)
    names = {}
    exec(compile(code, PAGE.name, "exec"), names)  # noqa: S102
    return names["verify"]


@pytest.mark.usefixtures("vectors", "echo")
def test_a_receiver_verifies_a_callback_as_the_page_says(serve, receiver):
    old = "whsec_" + base64.b64encode(b"another key of 24 bytes ").decode()
    front = serve(f"--callbackHosts={receiver.place}", f"--callbackSecret={SECRET} {old}")
    submit(front.url, callback=receiver.url)
    wait_until(lambda: receiver.posts)
    ((headers, body),) = receiver.posts
    for secret in (SECRET, old):
        assert verify()(secret, headers, body)["status"] == "done"
    late = str(int(headers["webhook-timestamp"]) - 600)
    for wrong in (
        (SECRET, headers, body + b" "),
        (SECRET, headers | {"webhook-id": "other"}, body),
        (SECRET, headers | {"webhook-timestamp": late}, body),
        ("whsec_" + base64.b64encode(bytes(32)).decode(), headers, body),
    ):
        with pytest.raises(ValueError, match="callback"):
            verify()(*wrong)


@pytest.mark.parametrize("secret", ["hunter2", "whsec_", "whsec_c2hvcnQ=", "whsec_$$$"])
def test_a_secret_that_cannot_be_used_is_one_line_of_the_start(capsys, secret):
    with pytest.raises(SystemExit):
        main(["--callbackHosts=host", f"--callbackSecret={secret} ", "--port=0", "--grpcPort=0"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: a key of callbackSecret is not base64") and "openssl rand" in line
    assert f" {secret} " not in line


@pytest.mark.usefixtures("vectors", "echo")
def test_a_callback_to_this_machine_goes_through_no_proxy(serve, receiver, monkeypatch):
    with monkeypatch.context() as environment:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            environment.setenv(variable, "http://127.0.0.1:1")
        environment.setenv("NO_PROXY", "example.com")
        front = serve(f"--callbackHosts={receiver.place}")
    submit(front.url, callback=receiver.url)
    wait_until(lambda: receiver.posts)


@pytest.mark.parametrize(("variable", "value"), [("HTTPS_PROXY", "http://host:port"), ("NO_PROXY", "[::1")])
def test_a_proxy_that_cannot_be_used_is_one_line_of_the_start(serve, monkeypatch, capsys, variable, value):
    monkeypatch.setenv(variable, value)
    # Nobody who has no callbacks is troubled.
    serve().stop()
    with pytest.raises(SystemExit):
        main(["--callbackHosts=host", "--port=0", "--grpcPort=0"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: callbacks cannot use the proxies of the environment") and variable in line


def test_the_command_logs_no_addresses_of_callbacks(monkeypatch):
    logger = logging.getLogger("httpx")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    with pytest.raises(SystemExit):
        main(["--no-such-option"])
    assert logger.level == logging.WARNING


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        (["host:80"], "http://host/x"),
        (["host:443"], "https://host"),
        (["Host"], "http://host:9000/"),
        (["host:9000"], "http://HOST:9000/"),
        (["[::1]:80"], "http://[::1]/x"),
    ],
)
def test_a_host_is_allowed_with_its_port_also_where_the_address_has_the_usual_one(hosts, url):
    receivers = callback_module.Receivers(hosts)
    receivers.check(url)
    for other in ("http://host:81/", "https://other/"):
        if hosts != ["Host"] or "other" in other:
            with pytest.raises(Forbidden, match="callbackHosts"):
                receivers.check(other)
