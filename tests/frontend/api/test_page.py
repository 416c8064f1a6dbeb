"""The page /ui in a real browser, in front of real jobs."""

import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from cluster_serving.frontend import arguments
from cluster_serving.protocol.figures.stats import JobStats
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures import browser
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as started:
        yield started


@pytest.fixture(scope="module")
def jobs(cluster, tmp_path_factory):
    """Two jobs of the session's cluster: one ranks images, one gives the probabilities of vectors."""
    folder = tmp_path_factory.mktemp("ui")
    model_zoo.save_openvino_digit_images(folder / "images")
    model_zoo.save_openvino_digits(folder / "vectors")
    settings = {
        "ui-images": {"modelPath": folder / "images", "imageResize": "8,8", "postProcessing": "topN(3)"},
        "ui-vectors": {"modelPath": folder / "vectors"},
    }
    for name, options in settings.items():
        done = cluster.start(jobName=name, **options)
        assert done.returncode == 0, done.stdout + done.stderr
    yield list(settings)
    for name in settings:
        cluster.stop(name)


@pytest.fixture(scope="module")
def front(cluster, jobs):
    """A front end of these jobs."""
    words = [f"--redisPort={cluster.redis_port}", f"--models={','.join(jobs)}", "--port=0", "--grpcPort=0"]
    running = Running(arguments.read([*words, f"--flinkUiUrl={cluster.rest}"], {}))
    yield running
    running.stop()


@pytest.fixture
def page(chromium, front):
    with browser.watched(chromium, front.url) as opened:
        choose(opened, "ui-images")
        yield opened


@pytest.fixture(scope="module")
def digit(tmp_path_factory):
    """Image files of digits as people would draw them, by class; the model knows them."""
    folder = tmp_path_factory.mktemp("digits")
    x, labels = model_zoo.digits_data()
    known = np.flatnonzero(model_zoo.digits_mlp(x).argmax(1) == labels)
    files = {}
    for number in known:
        pixels = np.round(x[number].reshape(8, 8) * 255).astype("u1")
        files[int(labels[number])] = path = folder / f"{labels[number]}.png"
        cv2.imwrite(str(path), pixels.repeat(8, 0).repeat(8, 1))
    return files


def choose(page, name):
    page.get_by_role("complementary").get_by_role("button", name=name).click()
    expect(page.locator("#model-name")).to_have_text(name)


def reading(page, title):
    """Newest value of a chart; None if there is none."""
    text = page.locator(".chart", has=page.get_by_role("heading", name=title)).locator(".value").first.text_content()
    return None if "\N{EN DASH}" in text else float(text.replace(",", ""))


def test_models_are_shown_with_what_they_take(page, cluster):
    expect(page.get_by_role("status")).to_have_text("Live")
    expect(page.locator("#model-state")).to_have_text("Ready")
    details = page.locator("#details")
    for text in ("float32[?, 3, 8, 8]", "float32[?, 10]", "OpenVINO", "topN(3)", "ui-images", "1 ready"):
        expect(details).to_contain_text(text)
    expect(page.get_by_role("link", name="Flink UI")).to_have_attribute("href", cluster.rest)


def test_a_picture_is_answered_with_its_class_and_bars(page, digit):
    for label in (3, 7):
        page.get_by_label("Choose an image").set_input_files(digit[label])
        expect(page.locator("#file-size")).to_contain_text(re.compile("^64 . 64, "))
        page.get_by_role("button", name="Send").click()
        bars = page.get_by_role("list", name="Classes, best first").get_by_role("listitem")
        expect(bars.first).to_contain_text(re.compile(rf"^class {label}"))
        expect(bars).to_have_count(3)
        shares = [float(bar.locator(".share").text_content()) for bar in bars.all()]
        widths = [bar.locator(".bar").bounding_box()["width"] for bar in bars.all()]
        track = bars.first.locator(".track").bounding_box()["width"]
        np.testing.assert_allclose(widths, np.multiply(shares, track), atol=1)
        expect(page.locator(".took")).to_contain_text(" ms")


@pytest.mark.parametrize("event", ["drop", "paste"])
def test_a_picture_may_be_dropped_or_pasted(page, digit, event):
    transfer = page.evaluate_handle(
        """bytes => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(bytes)], "dropped.png", {type: "image/png"}));
            return transfer;
        }""",
        list(digit[5].read_bytes()),
    )
    if event == "drop":
        page.locator("#drop").dispatch_event("drop", {"dataTransfer": transfer})
    else:
        page.evaluate("data => document.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data}))", transfer)
    expect(page.locator("#file-name")).to_have_text("dropped.png")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".best .class")).to_have_text("class 5")


def test_a_vector_is_shown_as_its_numbers(page):
    choose(page, "ui-vectors")
    expect(page.get_by_label("JSON")).to_be_checked()
    page.get_by_role("button", name="Send").click()
    expected = model_zoo.digits_mlp(np.zeros((1, 64), "f4"))[0]
    values = page.get_by_label("Values of output")
    expect(values).to_contain_text("[0.")
    np.testing.assert_allclose(json.loads(values.text_content()), expected, atol=0.02)
    heights = [float(bar.get_attribute("height")) for bar in page.locator(".vector rect").all()]
    np.testing.assert_allclose(heights, expected / expected.max(), atol=0.05)
    expect(page.get_by_role("list", name="Classes, best first")).to_have_count(0)


def test_a_model_is_named_by_the_address(page):
    choose(page, "ui-vectors")
    assert page.url.endswith("#ui-vectors")
    page.goto(page.url.replace("#ui-vectors", "#ui-images"))
    expect(page.locator("#model-name")).to_have_text("ui-images")
    page.reload()
    expect(page.locator("#model-name")).to_have_text("ui-images")


def test_nothing_is_sent_to_a_failed_model_and_texts_are_shown_as_texts(page):
    """The data of the page is changed on its way: no job of these tests fails, takes or answers texts."""

    def failed(route):
        data = route.fetch().json()
        for model in data["models"]:
            model["state"] = "failed"
            model["inputs"] = [taken | {"dtype": "str"} for taken in model["inputs"]]
        route.fulfill(json=data)

    choose(page, "ui-vectors")
    expect(page.get_by_label("Image", exact=True)).to_be_enabled()
    answer = {"predictions": [{"value": 'a "text"'}]}
    page.route("**/predict?*", lambda route: route.fulfill(json=answer))
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_label("Text", exact=True)).to_have_text('a "text"')
    page.route("**/ui/data", failed)
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    expect(page.locator("#send-hint")).to_contain_text("failed")
    expect(page.get_by_label("Image", exact=True)).to_be_disabled()


def test_the_form_comes_before_the_charts_on_a_phone(chromium, front):
    with browser.watched(chromium, front.url, viewport={"width": 390, "height": 800}) as page:
        choose(page, "ui-images")
        assert page.locator("#try").bounding_box()["y"] < page.locator("#charts").bounding_box()["y"]


def test_the_charts_move_while_requests_flow_past_the_front_end(page, cluster, cluster_db):
    choose(page, "ui-vectors")
    wait_until(lambda: reading(page, "Throughput") == 0, 60)
    before = JobStats.read(cluster_db.hgetall(JobKeys("ui-vectors").stats()))
    vectors = model_zoo.digits_data()[0]
    queue, _ = cluster.queues("ui-vectors")
    with queue, ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda vector: queue.predict({"x": vector}, timeout=60), vectors)
        assert len(list(answers)) == 400
    # Chromium looks by itself; the newest values stay until the requests are five seconds old.
    expect(page.get_by_role("img", name=re.compile(r"^Throughput:  ?[1-9]"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile(r"^Latency: p50 [\d.]+ ms, p99 [\d.]+ ms"))).to_be_visible()
    assert page.locator(".chart .line.series-1").count() >= 1
    key = JobKeys("ui-vectors").stats()
    wait_until(lambda: JobStats.read(cluster_db.hgetall(key)).requests == before.requests + 400)
    after = JobStats.read(cluster_db.hgetall(key))
    assert after.failures == before.failures
    assert sum(after.latency_ms) - sum(before.latency_ms) == 400
    assert 400 / 32 <= after.batches - before.batches <= 400
    wait_until(lambda: reading(page, "Throughput") == 0, 60)


def test_the_picture_of_the_docs_is_that_of_a_page_with_its_figures(page, cluster, digit, tmp_path):
    """`CLUSTER_SERVING_PICTURES=docs/images` writes the picture there, after two minutes of requests."""
    folder = os.environ.get("CLUSTER_SERVING_PICTURES", "")
    end, rate = time.monotonic() + (130 if folder else 0), np.random.default_rng(0)
    queue, _ = cluster.queues("ui-images")
    with queue:
        while True:
            for size in (1, 1, 1, 8, 1 + int(12 * (1 + np.sin(time.monotonic() / 20)))):
                shape = (3, 8, 8) if rate.random() > 0.02 else (2, 2)
                list(queue.predict_many({"x": np.zeros(shape, "f4")} for _ in range(size)))
            if time.monotonic() >= end:
                break
    page.get_by_label("Choose an image").set_input_files(digit[3])
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("list", name="Classes, best first")).to_be_visible()
    expect(page.get_by_role("table", name="Versions")).to_contain_text("Ready")
    picture = Path(folder or tmp_path) / "ui.png"
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=picture, full_page=True, clip={"x": 0, "y": 0, "width": 1280, "height": 1060})
    assert cv2.imread(str(picture)).shape == (1060, 1280, 3)


def test_errors_are_shown_as_the_server_words_them(page, tmp_path):
    (tmp_path / "no.png").write_bytes(b"no picture")
    page.get_by_role("button", name="Send").click()
    result = page.get_by_role("region", name="Answer")
    expect(result).to_contain_text("Choose an image first.")
    page.get_by_label("Choose an image").set_input_files(tmp_path / "no.png")
    expect(page.locator("#file-size")).to_contain_text("no preview")
    page.get_by_role("button", name="Send").click()
    expect(result).to_contain_text("INVALID_INPUT")
    expect(result).to_contain_text("is not an image that can be read")
    page.get_by_label("JSON").check()
    for body, message in (
        ("{", "the body is not JSON"),
        ('{"instances": [{"x": [1, 2]}]}', "float32[3, 8, 8]"),
        ('{"instances": [{"x": [1, 2]}, {"x": null}]}', "Prediction 2"),
    ):
        page.get_by_label("Request body").fill(body)
        page.get_by_role("button", name="Send").click()
        expect(result).to_contain_text(message)


def test_the_keyboard_is_enough(page, digit):
    focused = "document.activeElement.id || document.activeElement.name || document.activeElement.textContent"
    choose(page, "ui-vectors")
    page.reload()
    expect(page.locator("#model-name")).to_have_text("ui-vectors")
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Skip to the form"
    page.keyboard.press("Enter")
    assert page.evaluate(focused) == "try"
    order = []
    while "send" not in order:
        page.keyboard.press("Tab")
        order.append(page.evaluate(focused))
        assert len(order) < 10
    assert order == ["kind", "example", "body", "send"]
    page.keyboard.press("Enter")
    expect(page.locator(".vector")).to_be_visible()
    for _ in range(3):
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_label("Image", exact=True)).to_be_checked()
    page.get_by_label("Choose an image").set_input_files(digit[4])
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "file"
    assert page.locator("#drop").evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.locator(".result .problem")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_in_light_and_dark_and_fields_have_names(chromium, front, digit, scheme):
    with browser.watched(chromium, front.url, color_scheme=scheme) as page:
        choose(page, "ui-images")
        page.get_by_label("Choose an image").set_input_files(digit[2])
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("list", name="Classes, best first")).to_be_visible()
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(13, 16, 22)") == (scheme == "dark")
        for kind in ("Image", "JSON"):
            page.get_by_label(kind, exact=True).check()
            contrasts = page.evaluate(browser.CONTRASTS)
            assert len(contrasts) > 30
            assert {text: contrast for text, contrast in contrasts.items() if contrast < 4.5} == {}
            assert page.evaluate(browser.NAMELESS) == []
        page.get_by_role("button", name="Light" if scheme == "dark" else "Dark").click()
        changed = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert changed != background
        page.reload()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == changed


@pytest.mark.parametrize("width", [360, 700, 1600])
def test_nothing_sticks_out_of_narrow_screens(chromium, front, width):
    with browser.watched(chromium, front.url, viewport={"width": width, "height": 800}) as page:
        choose(page, "ui-images")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_files_say_what_they_may_load(front):
    for path in ("/ui", "/ui/app.js", "/ui/style.css"):
        response = httpx.get(f"{front.url}{path}")
        assert response.status_code == 200
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "unsafe" not in response.headers["content-security-policy"]
    assert httpx.get(f"{front.url}/ui/../page.py").status_code == 404
    assert httpx.get(f"{front.url}/ui/nothing.js").status_code == 404
