"""What the page /ui says of models that are loading, have failed or are gone, and of a server that is away."""

import httpx
import pytest
from playwright.sync_api import expect

from cluster_serving.frontend.server.admission.keys import new_key
from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from cluster_serving.protocol.slots import SlotReport
from tests.support.fixtures import browser


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
    db.delete(JobKeys(job).slots(), JobKeys(job).stats())


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
        expect(page.get_by_role("link", name="API")).to_have_attribute("href", "docs")
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
