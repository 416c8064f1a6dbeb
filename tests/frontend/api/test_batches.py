"""Files of requests, sent and fetched by OpenAI's own client."""

import json
import os
import re
import signal
from contextvars import copy_context
from pathlib import Path

import httpx
import openai
import pytest

from cluster_serving.frontend.api.openai import batch_lines, batch_runner, batch_store
from cluster_serving.frontend.api.openai.multipart import Part, parts
from cluster_serving.frontend.caller import origin, set_caller
from cluster_serving.frontend.server.admission.keys import new_key
from cluster_serving.protocol.asynchronous import leases
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures.front_end import launched
from tests.support.fixtures.generating import EMBEDDER, PARROT, generating
from tests.support.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("quick_turns")

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "openai.md"
ENDS = ("completed", "failed", "expired", "cancelled")

SLOW = """
    import time

    class Handler:
        inputs = {"text": "str"}
        outputs = {"text": "str"}

        def predict(self, batch):
            time.sleep(0.05)
            return {"text": [text.upper() for text in batch["text"]]}
    """


@pytest.fixture
def ask(serve):
    with client(serve().url) as client_:
        yield client_


@pytest.fixture(autouse=True)
def no_files_left(db):
    yield
    for key in db.scan_iter("cluster-serving:*"):
        if key.startswith((b"cluster-serving:file", b"cluster-serving:batch")):
            db.delete(key)


def client(url, key="none"):
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=30)


def lines(endpoint, bodies):
    rows = [
        {"custom_id": f"row {index}", "method": "POST", "url": endpoint, "body": body}
        for index, body in enumerate(bodies)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def begin(ask, endpoint, content, **more):
    file = ask.files.create(file=("in.jsonl", content), purpose="batch")
    return ask.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **more)


def finished(ask, batch):
    wait_until(lambda: ask.batches.retrieve(batch.id).status in ENDS, 60)
    return ask.batches.retrieve(batch.id)


def answers(ask, file_id):
    return [json.loads(line) for line in ask.files.content(file_id).text.splitlines()] if file_id else []


def counts(batch):
    found = batch.request_counts
    return found.total, found.completed, found.failed


def test_embeddings_come_in_the_order_of_the_file(redis_server, job, ask, tmp_path):
    texts = ["a" * number for number in range(1, 151)]
    content = lines("/v1/embeddings", [{"model": job, "input": text} for text in texts])
    with generating(redis_server.port, job, tmp_path, EMBEDDER):
        made = begin(ask, "/v1/embeddings", content, metadata={"for": "test"})
        assert (made.object, made.status, made.metadata) == ("batch", "validating", {"for": "test"})
        done = finished(ask, made)
    assert (done.status, counts(done), done.error_file_id) == ("completed", (150, 150, 0), None)
    assert done.created_at <= done.in_progress_at <= done.finalizing_at <= done.completed_at <= done.expires_at
    found = answers(ask, done.output_file_id)
    assert [row["custom_id"] for row in found] == [f"row {index}" for index in range(150)]
    assert {row["response"]["status_code"] for row in found} == {200}
    assert [row["response"]["body"]["data"][0]["embedding"][0] for row in found] == list(range(1, 151))
    assert len({row["id"] for row in found}) == 150
    output = ask.files.retrieve(done.output_file_id)
    assert (output.purpose, output.filename) == ("batch_output", f"{done.id}_output.jsonl")


def test_lists_come_in_pages(ask):
    ids = [ask.files.create(file=("in.jsonl", b"{}"), purpose="batch").id for _ in range(3)]
    page = ask.files.list(limit=2, purpose="batch")
    assert (len(page.data), page.has_more) == (2, True)
    assert sorted(file.id for file in page) == sorted(ids)
    assert sorted(file.id for file in ask.files.list(limit=1, order="asc")) == sorted(ids)
    assert next(file.id for file in ask.files.list(after=page.data[0].id)) == page.data[1].id
    assert ask.files.list(purpose="batch_output").data == []
    with pytest.raises(openai.NotFoundError, match="'after' is 'file-x'"):
        ask.files.list(after="file-x")
    made = [ask.batches.create(input_file_id=ids[0], endpoint="/v1/embeddings", completion_window="24h").id]
    made += [ask.batches.create(input_file_id=ids[0], endpoint="/v1/embeddings", completion_window="24h").id]
    assert [batch.id for batch in ask.batches.list(limit=1)] == [*reversed(made)]


def test_files_live_as_long_as_asked_for(redis_server, db, job, ask, tmp_path):
    content = lines("/v1/embeddings", [{"model": job, "input": "a"}])
    lifetime = {"anchor": "created_at", "seconds": 7200}
    file = ask.files.create(file=("in.jsonl", content), purpose="batch", expires_after=lifetime)
    assert file.expires_at == file.created_at + 7200
    assert 7100 < db.ttl(f"cluster-serving:file:{file.id}:content") <= 7200
    with generating(redis_server.port, job, tmp_path, EMBEDDER):
        asked = {"input_file_id": file.id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
        done = finished(ask, ask.batches.create(**asked, output_expires_after=lifetime))
    output = ask.files.retrieve(done.output_file_id)
    assert output.expires_at == output.created_at + 7200
    for wrong in ({"anchor": "created_at", "seconds": 60}, {"anchor": "last_active_at", "seconds": 7200}):
        with pytest.raises(openai.BadRequestError, match="'expires_after' is .*; expected the anchor 'created_at'"):
            ask.files.create(file=("in.jsonl", content), purpose="batch", expires_after=wrong)
        with pytest.raises(openai.BadRequestError, match="'output_expires_after' is"):
            ask.batches.create(**asked, output_expires_after=wrong)
    with pytest.raises(openai.BadRequestError, match="there is no parameter 'priority'"):
        ask.batches.create(**asked, extra_body={"priority": "high"})
    with pytest.raises(openai.BadRequestError, match="the form has no field 'lifetime'"):
        ask.files.create(file=("in.jsonl", content), purpose="batch", extra_body={"lifetime": "1"})


def test_the_program_of_the_page_runs(redis_server, serve, tmp_path, monkeypatch, capsys):
    page = PAGE.read_text("utf8")
    (row,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (program,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    (tmp_path / "requests.jsonl").write_text(row)
    monkeypatch.chdir(tmp_path)
    url = serve("--requiredModels=words").url
    with generating(redis_server.port, "words", tmp_path, EMBEDDER):
        exec(program.replace("http://localhost:10020", url), {})  # noqa: S102
    assert json.loads(capsys.readouterr().out)["response"]["body"]["data"][0]["embedding"] == [3, 1, 0]


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/chat/completions"])
def test_requests_that_fail_are_in_the_error_file(redis_server, job, ask, tmp_path, endpoint):
    chat = endpoint.endswith("chat/completions")

    def body(text, **more):
        return ({"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}) | more

    bodies = [
        body("one two", model=job),
        body("fail", model=job),
        body("three", model=job, temprature=1),
        body("x", model="o"),
    ]
    with generating(redis_server.port, job, tmp_path, PARROT, most=1):
        done = finished(ask, begin(ask, endpoint, lines(endpoint, bodies)))
    assert (done.status, counts(done)) == ("completed", (4, 1, 3))
    (good,) = answers(ask, done.output_file_id)
    choice = good["response"]["body"]["choices"][0]
    assert (good["custom_id"], choice["message"]["content"] if chat else choice["text"]) == ("row 0", "one two ")
    bad = answers(ask, done.error_file_id)
    assert [row["custom_id"] for row in bad] == ["row 1", "row 2", "row 3"]
    assert [row["response"]["status_code"] for row in bad] == [500, 400, 404]
    codes = [row["response"]["body"]["error"]["code"] for row in bad]
    assert codes == ["INFERENCE_FAILED", "INVALID_INPUT", "MODEL_NOT_FOUND"]


def test_a_file_that_is_none_fails_with_the_numbers_of_its_lines(ask, job):
    good = json.loads(lines("/v1/embeddings", [{"model": job, "input": "a"}]))
    wrong = [
        "{",
        "[]",
        json.dumps(good | {"custom_id": 3}),
        json.dumps(good | {"url": "/v1/completions"}),
        json.dumps(good | {"body": {"stream": True}, "custom_id": "other"}),
        "",
        json.dumps(good),
        json.dumps(good),
    ]
    done = finished(ask, begin(ask, "/v1/embeddings", "\n".join(wrong).encode()))
    assert (done.status, done.output_file_id) == ("failed", None)
    assert [error.line for error in done.errors.data] == [1, 2, 3, 4, 5, 8]
    assert "custom_id" in done.errors.data[-1].message
    assert finished(ask, begin(ask, "/v1/embeddings", b"\n")).errors.data[0].message == "the file has no requests"


def test_a_batch_may_have_so_many_requests(monkeypatch):
    monkeypatch.setattr(batch_lines, "MOST_LINES", 2)
    found, errors = batch_lines.read(lines("/v1/embeddings", [{}] * 3), "/v1/embeddings")
    assert (len(found), errors[0]["line"]) == (2, 3)
    assert errors[0]["message"] == "the file has more than 2 requests"


def test_reading_a_file_of_another_kind_ends_after_a_hundred_lines():
    _, errors = batch_lines.read(b"x\n" * 1000, "/v1/embeddings")
    assert [error["line"] for error in errors] == list(range(1, 101))


def test_a_line_has_a_limit_of_lists_as_any_body_has():
    row = lines("/v1/embeddings", [{"input": []}]).strip().replace(b"[]", b"[" + b"1," * (1 << 22) + b"1]")
    _, (error,) = batch_lines.read(row, "/v1/embeddings")
    assert "holds more than" in error["message"]


def test_another_front_end_completes_the_batch_of_one_that_was_killed(redis_server, job, serve, tmp_path):
    texts = [f"text {number}" for number in range(200)]
    content = lines("/v1/completions", [{"model": job, "prompt": text} for text in texts])
    with generating(redis_server.port, job, tmp_path, SLOW, most=1):
        process, url = launched(redis_server, job)
        with process:
            with client(url) as ask:
                batch = begin(ask, "/v1/completions", content)
                wait_until(lambda: ask.batches.retrieve(batch.id).request_counts.completed >= 20)
            os.kill(process.pid, signal.SIGKILL)
        with client(serve().url) as ask:
            before = ask.batches.retrieve(batch.id)
            assert before.status == "in_progress" and before.request_counts.completed < 200
            done = finished(ask, batch)
            assert (done.status, counts(done)) == ("completed", (200, 200, 0))
            found = answers(ask, done.output_file_id)
    assert [row["response"]["body"]["choices"][0]["text"] for row in found] == [text.upper() for text in texts]


def test_a_batch_that_takes_longer_than_its_lease_is_computed_once(redis_server, db, job, serve, tmp_path, monkeypatch):
    lease = 2.0
    monkeypatch.setattr(leases, "LEASE", lease)
    content = lines("/v1/completions", [{"model": job, "prompt": "a"}] * 50)
    slower = SLOW.replace("0.05", str(1.5 * lease / 50))
    with generating(redis_server.port, job, tmp_path, slower, most=1), client(serve().url) as ask:
        serve()
        assert counts(finished(ask, begin(ask, "/v1/completions", content))) == (50, 50, 0)
    assert int(db.get(JobKeys(job).answered)) == 50


def test_batches_whose_model_is_not_ready_leave_room(redis_server, report, job, ask, tmp_path, monkeypatch):
    report(state="loading", engine="")
    for name in ("_PATIENCE", "_PAUSE"):
        monkeypatch.setattr(batch_runner, name, 0.3)
    content = lines("/v1/completions", [{"model": job, "prompt": "a"}])
    waiting = [begin(ask, "/v1/completions", content) for _ in range(5)]
    assert finished(ask, begin(ask, "/v1/completions", b"{}")).status == "failed"
    with generating(redis_server.port, job, tmp_path, SLOW, most=1):
        assert {counts(finished(ask, batch)) for batch in waiting} == {(1, 1, 0)}


def test_a_front_end_that_lost_its_lease_does_not_end_a_batch_again(redis_server, db, job, ask, tmp_path):
    content = lines("/v1/completions", [{"model": job, "prompt": "a"}] * 60)
    with generating(redis_server.port, job, tmp_path, SLOW, most=1):
        batch = begin(ask, "/v1/completions", content)
        wait_until(lambda: ask.batches.retrieve(batch.id).request_counts.completed)
        key = f"cluster-serving:batch:{batch.id}"
        ended = json.loads(db.hget(key, "batch")) | {"status": "completed", "output_file_id": "file-a"}
        db.hset(key, "batch", json.dumps(ended))
        db.delete(f"{key}:outputs")
        wait_until(lambda: not db.exists("cluster-serving:batches:open"))
    found = ask.batches.retrieve(batch.id)
    assert (found.status, found.output_file_id) == ("completed", "file-a")


def test_a_batch_long_after_its_window_ends_without_its_file(ask, monkeypatch):
    monkeypatch.setattr(batch_runner, "_LATE", -2 * batch_store.WINDOW)
    done = finished(ask, begin(ask, "/v1/completions", b"no file of requests"))
    assert (done.status, done.errors, done.output_file_id) == ("expired", None, None)


def test_the_requests_of_a_batch_have_its_owner_whichever_front_end_sends_them(db, report, job, serve, tmp_path):
    report(("text", "str", ()))
    key, line = new_key("alice")
    (tmp_path / "keys").write_text(f"{line}\n")
    first = serve(f"--apiKeysFile={tmp_path / 'keys'}")
    with client(first.url, key) as alice:
        begin(alice, "/v1/completions", lines("/v1/completions", [{"model": job, "prompt": "a"}]))
    first.stop()
    db.delete(f"{job}:low")
    serve(f"--apiKeysFile={tmp_path / 'keys'}")
    wait_until(lambda: db.xlen(f"{job}:low"))
    ((_, fields),) = db.xrange(f"{job}:low")

    def of_alice():
        set_caller("alice", "")
        return origin()

    assert fields[b"origin"].decode() == copy_context().run(of_alice)


def test_a_cancelled_batch_keeps_what_it_has(redis_server, db, job, ask, tmp_path):
    content = lines("/v1/completions", [{"model": job, "prompt": "a"}] * 1000)
    with generating(redis_server.port, job, tmp_path, SLOW, most=1):
        batch = begin(ask, "/v1/completions", content)
        wait_until(lambda: ask.batches.retrieve(batch.id).request_counts.completed)
        assert ask.batches.cancel(batch.id).status == "cancelling"
        done = finished(ask, batch)
        wait_until(lambda: not db.xlen(f"{job}:low"))
    assert done.status == "cancelled" and done.cancelling_at <= done.cancelled_at
    total, completed, failed = counts(done)
    assert total == 1000 and 0 < completed < 1000 and not failed
    assert len(answers(ask, done.output_file_id)) == completed
    with pytest.raises(openai.BadRequestError, match="the batch cannot be cancelled: it is cancelled"):
        ask.batches.cancel(batch.id)


def test_what_is_not_answered_in_time_has_expired(redis_server, report, job, ask, monkeypatch):
    """As with a job that does not run for a day."""
    monkeypatch.setattr(batch_store, "WINDOW", 2)
    report(("text", "str", ()))
    done = finished(ask, begin(ask, "/v1/completions", lines("/v1/completions", [{"model": job, "prompt": "a"}])))
    assert (done.status, counts(done), done.output_file_id) == ("expired", (1, 0, 1), None)
    (row,) = answers(ask, done.error_file_id)
    assert (row["custom_id"], row["response"], row["error"]["code"]) == ("row 0", None, "batch_expired")


def test_files_are_listed_and_deleted(ask):
    made = [ask.files.create(file=(f"{name}.jsonl", name.encode()), purpose="batch") for name in ("a", "b", "c")]
    assert [file.id for file in ask.files.list()] == [file.id for file in reversed(made)]
    first = ask.files.retrieve(made[0].id)
    assert (first.filename, first.bytes, first.status, first.purpose) == ("a.jsonl", 1, "processed", "batch")
    assert ask.files.content(made[1].id).text == "b"
    assert ask.files.delete(made[1].id).deleted
    for fails in (ask.files.retrieve, ask.files.content, ask.files.delete):
        with pytest.raises(openai.NotFoundError, match="there is no file"):
            fails(made[1].id)
    with pytest.raises(openai.NotFoundError, match="there is no file"):
        ask.batches.create(input_file_id=made[1].id, endpoint="/v1/embeddings", completion_window="24h")


def test_all_files_together_have_a_limit(serve):
    with client(serve("--maxFileBytes=200000").url) as ask:
        first = ask.files.create(file=("a", bytes(100_000)), purpose="batch")
        with pytest.raises(openai.RateLimitError, match="more than 200000 bytes .maxFileBytes."):
            ask.files.create(file=("b", bytes(101_000)), purpose="batch")
        ask.files.delete(first.id)
        # However small, a file takes its place.
        small = [ask.files.create(file=("b", b"b"), purpose="batch") for _ in range(3)]
        with pytest.raises(openai.RateLimitError):
            ask.batches.create(input_file_id=small[0].id, endpoint="/v1/embeddings", completion_window="24h")


def test_without_room_for_files_there_are_no_batches(serve):
    assert httpx.get(f"{serve('--maxFileBytes=0').url}/v1/files").status_code == 404


def test_an_owner_has_few_unfinished_batches(db, report, job, ask, monkeypatch):
    monkeypatch.setattr(batch_store, "_MOST_UNFINISHED", 1)
    report(("text", "str", ()))
    content = lines("/v1/completions", [{"model": job, "prompt": "a"}])
    batch = begin(ask, "/v1/completions", content)
    with pytest.raises(openai.RateLimitError, match="1 batches are unfinished"):
        begin(ask, "/v1/completions", content)
    ask.batches.cancel(batch.id)
    finished(ask, batch)
    wait_until(lambda: not db.exists("cluster-serving:batches:open"))
    assert begin(ask, "/v1/completions", content).status == "validating"


def test_a_large_file_comes_back_byte_by_byte(ask):
    content = os.urandom((5 << 20) + 1)
    file = ask.files.create(file=("a", content), purpose="batch")
    answer = ask.files.content(file.id)
    assert answer.content == content and answer.response.headers["content-length"] == str(len(content))


def test_the_answers_of_a_batch_have_a_limit(redis_server, db, job, serve, tmp_path):
    content = lines("/v1/completions", [{"model": job, "prompt": "a" * 50}] * 20)
    longer = SLOW.replace("text.upper()", "text * 1000")
    with (
        client(serve("--maxFileBytes=200000").url) as ask,
        generating(redis_server.port, job, tmp_path, longer, most=1),
    ):
        done = finished(ask, begin(ask, "/v1/completions", content))
        assert (done.status, done.output_file_id) == ("failed", None)
        assert "maxFileBytes" in done.errors.data[0].message
        wait_until(lambda: not db.exists(f"cluster-serving:batch:{done.id}:outputs"))
        wait_until(lambda: not db.xlen(f"{job}:low"))


def test_files_and_batches_belong_to_the_key_that_made_them(serve, tmp_path):
    made = [new_key(name) for name in ("alice", "bob")]
    (tmp_path / "keys").write_text("".join(f"{line}\n" for _, line in made))
    url = serve(f"--apiKeysFile={tmp_path / 'keys'}").url
    with client(url, made[0][0]) as alice, client(url, made[1][0]) as bob:
        batch = begin(alice, "/v1/embeddings", b"{}")
        done = finished(alice, batch)
        assert [one.id for one in alice.batches.list()] == [batch.id]
        assert list(bob.batches.list()) == list(bob.files.list()) == []
        for fails in (
            lambda: bob.batches.retrieve(batch.id),
            lambda: bob.batches.cancel(batch.id),
            lambda: bob.files.content(done.input_file_id),
        ):
            with pytest.raises(openai.NotFoundError):
                fails()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"endpoint": "/v1/images"}, "'endpoint' is '/v1/images'; expected /v1/completions, "),
        ({"endpoint": ["a"]}, "'endpoint' is "),
        ({"endpoint": "/v1/embeddings", "completion_window": "1h"}, "'completion_window' is not '24h'"),
        ({"endpoint": "/v1/embeddings", "completion_window": "24h"}, "'input_file_id' is not a text"),
        ({"endpoint": "/v1/embeddings", "completion_window": "24h", "input_file_id": "x", "metadata": 3}, "'metadata'"),
    ],
)
def test_a_batch_that_cannot_be_made_is_refused(ask, body, message):
    answer = httpx.post(f"{ask.base_url}batches", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(message)


def test_the_request_for_a_batch_is_small(ask):
    answer = httpx.post(f"{ask.base_url}batches", content=b" " * (300 << 10))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "REQUEST_TOO_LARGE")


def test_a_form_has_its_parts_byte_by_byte():
    content = b'{"a": "\xc3\xa9"}\r\n--not the boundary\n\r\n'
    body = (
        b'--x y\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x y\r\n'
        b'Content-Disposition: form-data; name="file"; filename="a b.jsonl"\r\nContent-Type: text/plain\r\n\r\n'
        + content
        + b"\r\n--x y--\r\n"
    )
    kind = 'multipart/form-data; boundary="x y"'
    assert parts(body, kind) == {"purpose": Part(b"batch"), "file": Part(content, "a b.jsonl")}
    for wrong in ("application/json", "multipart/form-data"):
        with pytest.raises(InvalidInput, match="boundary"):
            parts(body, wrong)
    with pytest.raises(InvalidInput, match="no name"):
        parts(b"--x\r\n\r\nfile\r\n--x--", "multipart/form-data; boundary=x")


def test_a_form_has_few_parts_and_short_headers():
    kind, part = "multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n'
    assert parts(part * 16 + b"--x--", kind) == {"a": Part(b"b")}
    for body, kind_, message in (
        (part * 17 + b"--x--", kind, "more than 16 parts"),
        (part.replace(b'name="a"', b'name="a"; b="%s"' % bytes(5000)) + b"--x--", kind, "more than 4096 bytes"),
        (part + b"--x--", kind + "; a=b" * 1000, "Content-Type"),
    ):
        with pytest.raises(InvalidInput, match=message):
            parts(body, kind_)
