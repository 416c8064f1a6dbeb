"""What the page /ui says of models that are loading, have failed or are gone, and of a server that is away."""

import json
import re

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from cluster_serving.client import InputQueue
from cluster_serving.connectors.slot.answer import dead_letter
from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.frontend.server.admission.keys import new_key
from cluster_serving.protocol import events
from cluster_serving.protocol.errors import PoisonRequest
from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from tests.support.fixtures import browser
from tests.support.fixtures.waiting import wait_until


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as started:
        yield started


@pytest.fixture
def slot(db, job):
    """Writes what slots of the job say."""

    def slot(index, state, **fields):
        db.sadd(JOBS_KEY, job)
        db.hset(JobKeys(job).slots(), str(index), SlotReport("", state, index=index, **fields).to_json())

    yield slot
    db.srem(JOBS_KEY, job)
    keys = JobKeys(job)
    db.delete(keys.slots(), keys.slot_stats, keys.history, keys.events, keys.dead_letters)


@pytest.fixture
def counted(db, job):
    """Writes what slots of versions have counted."""

    def counted(**fields):
        db.hset(JobKeys(job).slot_stats, mapping={name.replace("__", "/"): value for name, value in fields.items()})

    return counted


@pytest.fixture
def bury(redis_server, db, job):
    """Sends requests that are given up."""
    create_group(db, job)

    def bury(*uris):
        with InputQueue(port=redis_server.port, name=job) as queue:
            for uri in uris:
                queue.enqueue(uri, x=np.zeros(3, "f4"))
        for entry in StreamReader(db, job, "c", 60_000).read(10, None):
            error = PoisonRequest("the process has ended 3 times: " + "libopencv_imgcodecs.so" * 9)
            dead_letter(db, job, 60, entry, error, "Traceback (most recent call last)")

    return bury


def test_without_models_the_page_says_how_to_start_one(chromium, serve, db):
    db.delete(JOBS_KEY)
    with browser.watched(chromium, serve().url) as page:
        expect(page.locator("#no-models")).to_contain_text("cluster-serving-start")
        expect(page.locator("#model")).to_be_hidden()


def test_a_state_is_followed_without_a_reload(chromium, serve, job, slot, db):
    slot(0, "loading")
    with browser.watched(chromium, serve(f"--models={job}").url) as page:
        state = page.locator("#model-state")
        expect(state).to_have_text("Loading")
        slot(0, "failed", code="MODEL_ERROR", error="the model folder is empty")
        expect(state).to_have_text("Failed")
        expect(page.get_by_role("alert")).to_have_text("MODEL_ERROR the model folder is empty")
        slot(0, "ready", engine="Echo")
        expect(state).to_have_text("Ready")
        expect(page.get_by_role("alert")).to_be_hidden()
        # Its attempt has given no heartbeat.
        slot(0, "ready", engine="Echo", attempt="gone")
        expect(state).to_have_text("Stopped")
        db.xadd(job, {"uri": "waits"})
        expect(page.get_by_role("img", name="Queue: 1 waiting")).to_be_visible()


def test_the_page_opens_on_a_model_that_serves(chromium, serve, job, slot, db):
    failed = f"a-{job}"
    db.sadd(JOBS_KEY, failed)
    db.hset(JobKeys(failed).slots(), "0", SlotReport("", "failed", error="no model").to_json())
    slot(0, "ready", engine="Echo")
    with browser.watched(chromium, serve(f"--models={failed},{job}").url) as page:
        expect(page.locator("#model-name")).to_have_text(job)
        expect(page.locator("#models .name")).to_have_text([job, failed])
    db.srem(JOBS_KEY, failed)
    db.delete(JobKeys(failed).slots())


def test_a_server_that_is_away_is_said_to_be(chromium, serve, job, slot):
    slot(0, "ready", engine="Echo")
    front = serve(f"--models={job}")
    with browser.watched(chromium, front.url) as page:
        connection = page.get_by_role("status")
        expect(connection).to_have_text("Live")
        front.stop()
        expect(connection).to_have_text("The server cannot be reached")
        expect(page.locator("#model-name")).to_have_text(job)


def test_a_key_is_asked_for_once_where_the_server_wants_one(chromium, serve, job, slot, tmp_path):
    key, line = new_key("alice")
    (tmp_path / "keys").write_text(line)
    slot(0, "ready", engine="Echo")
    front = serve(f"--models={job}", f"--apiKeysFile={tmp_path / 'keys'}")
    assert httpx.get(f"{front.url}/ui/data").status_code == 401
    with browser.watched(chromium, front.url) as page:
        dialog = page.get_by_role("dialog", name="API key")
        for tried, answer in (("wrong", "This server asks for an API key."), (key, "the API key is unknown")):
            expect(dialog).to_contain_text(answer)
            page.get_by_label("Key", exact=True).fill(tried)
            page.keyboard.press("Enter")
        expect(page.locator("#model-name")).to_have_text(job)
        expect(dialog).to_be_hidden()
        expect(page.get_by_role("link", name="API")).to_have_attribute("href", f"docs#{job}")
        page.reload()
        expect(page.locator("#model-name")).to_have_text(job)
        assert page.evaluate("localStorage.length") == 0


def test_the_queue_counts_requests_of_all_priorities(chromium, serve, job, slot, db):
    slot(0, "ready", engine="Echo")
    for stream in JobKeys(job).streams:
        db.xadd(stream, {"uri": "waits"})
    with browser.watched(chromium, serve(f"--models={job}").url) as page:
        expect(page.get_by_role("img", name="Queue: 3 waiting")).to_be_visible()
    db.delete(*JobKeys(job).streams)


def test_the_devices_of_the_slots_are_shown(chromium, serve, job, slot):
    for index, device in enumerate(("cuda:0", "cuda:1", "cuda:0")):
        slot(index, "ready", engine="Echo", device=device)
    with browser.watched(chromium, serve(f"--models={job}").url) as page:
        device = page.locator("#details dt", has_text="Device").locator("xpath=following-sibling::dd[1]")
        expect(device).to_have_text("2 cuda:0, 1 cuda:1")


def plot_width(page):
    return page.locator(".plot").first.evaluate("plot => plot.getBoundingClientRect().width")


def test_an_hour_of_history_survives_a_reload(chromium, serve, job, slot, counted, db):
    slot(0, "ready", engine="Echo", version="1")
    counted(**{"1__0__records_answered": 3000})
    seconds = db.time()[0]
    for before in range(3000, 0, -10):
        time = 1000 * (seconds - before)
        totals = {"requests": 3000 - before, "failures": 0, "codes": {}, "batches": 3000 - before, "latency": [0] * 21}
        told = {"time": time, "queue": 0, "oldest": 0, "dead": 0, "versions": {"1": totals}}
        db.xadd(JobKeys(job).history, {"figures": json.dumps(told)}, id=f"{time}-0")
    with browser.watched(chromium, serve(f"--models={job}").url) as page:
        for _ in range(2):
            page.get_by_label("1 hour").check()
            line = page.locator(".chart", has=page.get_by_role("heading", name="Throughput")).locator(".line")
            expect(line).to_have_count(1)
            # 50 of 60 minutes, between the scale and the border; a chart that is being drawn has no box.
            wait_until(lambda line=line: (box := line.bounding_box()) and 0.6 < box["width"] / plot_width(page) < 0.85)
            row = page.get_by_role("table", name="Versions").get_by_role("row").nth(1)
            expect(row).to_contain_text("3,000")
            # The last sample is some seconds old.
            expect(row).to_contain_text(re.compile(r"(1|0\.9\d*)/s"))
            page.reload()


def test_figures_are_shown_by_version_and_failures_by_code(chromium, serve, job, slot, counted):
    slot(0, "ready", engine="Echo", version="2")
    counted(**{"1__0__records_answered": 5, "2__0__records_answered": 7})
    with browser.watched(chromium, serve(f"--models={job}").url) as page:
        rows = page.get_by_role("table", name="Versions").get_by_role("row")
        for row, cells in ((1, ("1", "Ended", "5", "0")), (2, ("2", "Ready", "7", "0"))):
            for at, cell in enumerate(cells):
                expect(rows.nth(row).locator("th, td").nth(at)).to_have_text(cell)
        counted(**{"2__0__records_failed:MODEL_ERROR": 3, "1__0__records_failed:INVALID_INPUT": 1})
        codes = page.get_by_role("list", name="Failures by code").get_by_role("listitem")
        expect(codes).to_have_text([re.compile("^MODEL_ERROR3"), re.compile("^INVALID_INPUT1")])
        expect(rows.nth(2)).to_contain_text("10")
        page.get_by_label("v1", exact=True).check()
        expect(codes).to_have_text([re.compile("^INVALID_INPUT1")])


def test_a_slot_shows_its_threads_cores_and_memory(chromium, serve, job, slot, counted):
    slot(0, "ready", engine="Echo", device="cpu", threads=4)
    counted(**{"1__0__cpu_seconds": 1, "1__0__process_memory_bytes": 123_000_000, "1__0__alive": 10**14})
    with browser.watched(chromium, serve(f"--models={job}").url) as page:
        row = page.get_by_role("table", name="Slots").get_by_role("row").nth(1)
        for text in ("Ready", "cpu", "4", "123 MB"):
            expect(row).to_contain_text(text)
        counted(**{"1__0__cpu_seconds": 60_000_000})
        expect(row.locator("[data-title=Cores]")).to_have_text(re.compile("[1-9]"))


def test_events_are_listed_with_those_who_caused_them(chromium, serve, job, slot, db):
    slot(0, "ready", engine="Echo")
    for what in ("starting", "running"):
        events.record(db, job, what, "cluster-serving-start")
    with browser.watched(chromium, serve(f"--models={job}").url) as page:
        shown = page.locator("#events li p")
        # One command, named once.
        expect(shown).to_have_text(["runningcluster-serving-start", "starting"])


def test_a_dead_letter_is_queued_again_by_its_button(chromium, serve, job, slot, bury, db):
    slot(0, "ready", engine="Echo")
    bury("photo-1", "photo-2", "photo-3")
    with browser.watched(chromium, serve(f"--models={job}").url) as page:
        letters = page.get_by_role("list", name="Dead letters, newest first").locator("> li")
        expect(letters).to_have_count(3)
        expect(letters.first).to_contain_text("POISON_REQUEST the process has ended 3 times")
        page.get_by_role("button", name="Requeue photo-2").click()
        expect(letters).to_have_count(2)
        expect(page.locator("#requeue-result")).to_have_text("1 queued again.")
        expect(page.locator("#events")).to_contain_text("('photo-2') queued again")
        page.get_by_role("button", name="Requeue all").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        assert db.xlen(JobKeys(job).dead_letters) == 2
        page.get_by_role("button", name="Requeue all").click()
        page.get_by_role("dialog").get_by_role("button", name="Requeue").click()
        expect(letters).to_have_count(0)
    assert [fields[b"uri"] for _, fields in db.xrange(job)] == [b"photo-2", b"photo-3", b"photo-1"]
    db.delete(job)


def test_where_nobody_may_queue_letters_again_the_page_says_how(chromium, serve, job, slot, bury):
    slot(0, "ready", engine="Echo")
    bury("photo-1")
    port = serve(f"--models={job}", "--interface=0.0.0.0").url.rpartition(":")[2]
    with browser.watched(chromium, f"http://127.0.0.1:{port}") as page:
        expect(page.locator("#letters")).to_contain_text("photo-1")
        expect(page.locator("#may-not")).to_contain_text("apiKeysFile")
        assert page.get_by_role("button", name="Requeue photo-1").count() == 0


@pytest.mark.parametrize("path", ["ui", "docs"])
@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_needs_no_horizontal_scrolling(chromium, serve, job, slot, bury, counted, db, width, path):
    slot(0, "ready", engine="Echo", inputs=(TensorSpec("x", "float32", (None, 3)),), device="cuda:0", threads=16)
    counted(**{f"{version}__0__records_failed:INFERENCE_FAILED": 123_456 for version in (11, 12)})
    bury("an/" + "endless" * 20)
    events.record(db, job, "w" * 200, "somebody")
    with browser.watched(chromium, serve(f"--models={job}").url, viewport={"width": width, "height": 800}) as page:
        page.goto(path)
        expect(page.locator("#letters, #sample")).to_contain_text("endless" if path == "ui" else "curl")
        if path == "docs":
            page.locator("summary").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_classes_have_their_labels_and_an_answer_its_trace(chromium, serve, job, slot, db):
    slot(0, "ready", engine="Echo", inputs=(TensorSpec("x", "float32", (None, 3)),))
    best, other = {"class": 207, "label": "golden retriever"}, {"class": 3, "label": "tiger shark"}
    ranking = [best | {"prob": 0.9}, other | {"prob": 0.1}]
    sent = []

    def answer(route):
        sent.append(route.request.headers["traceparent"])
        route.fulfill(json={"predictions": [{"value": ranking}]})

    front = serve(f"--models={job}", "--traceUrl=http://localhost:16686/trace/{traceId}")
    with browser.watched(chromium, front.url) as page:
        page.route("**/predict?*", answer)
        page.get_by_role("button", name="Send").click()
        classes = page.get_by_role("list", name="Classes, best first").locator(".class")
        expect(classes).to_have_text(["golden retriever 207", "tiger shark 3"])
        _, trace, _, flags = sent[0].split("-")
        assert (len(trace), flags) == (32, "01")
        expect(page.get_by_role("link", name="Trace")).to_have_attribute(
            "href", f"http://localhost:16686/trace/{trace}"
        )
