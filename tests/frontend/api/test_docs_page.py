"""The page /docs in a real browser: its programs run, with the inputs of the model at hand."""

import json
import re
import subprocess
import sys

import cv2
import numpy as np
import pytest
from playwright.sync_api import expect

from cluster_serving.protocol.results import encode_result
from tests.support.fixtures import browser
from tests.support.fixtures.echo import answering, echoed

INPUTS = {
    "small": [("x", "float32", (None, 3)), ("count", "int64", (None, 1)), ("text", "str", (None, 1))],
    "large": [("x", "float32", (None, 20, 30)), ("flag", "bool", (None, 2))],
    "image": [("photo", "float32", (None, 3, 8, 8))],
    "odd": [("it's\n$(exit 1)", "float32", (None, 3))],
    "odd and large": [("it's\n$(exit 1)", "float32", (None, 20, 30))],
}


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as started:
        yield started


@pytest.fixture
def image(tmp_path):
    cv2.imwrite(str(tmp_path / "image.jpg"), np.zeros((8, 8, 3), "u1"))


def code(page, language):
    page.get_by_label(language, exact=True).check()
    return page.get_by_label("Example", exact=True).text_content()


def printed(command, folder, **environment):
    done = subprocess.run(
        command, cwd=folder, env=environment or None, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize("kind", INPUTS)
def test_its_programs_are_answered(chromium, serve, report, db, job, tmp_path, kind):
    report(*INPUTS[kind])
    fields = encode_result(True, ["y"], [np.arange(3, dtype="f4")])
    url = serve(f"--models={job}").url
    with answering(db, job, lambda entry: fields), browser.watched(chromium, url) as page:
        page.goto(f"docs#{job}")
        for name, dtype, shape in INPUTS[kind]:
            sizes = ", ".join("?" if size is None else str(size) for size in shape)
            expect(page.locator("#sample")).to_contain_text(f"input {name}: {dtype}[{sizes}]")
        assert json.loads(printed(["bash", "-c", code(page, "curl")], tmp_path))["predictions"][0]["value"] == [0, 1, 2]
        assert json.loads(printed([sys.executable, "-c", code(page, "Python")], tmp_path)) == [0, 1, 2]
        script = code(page, "JavaScript")
        # Only Node reads files.
        if kind != "image":
            assert page.evaluate(f"async () => {{ {script.replace('console.log', 'return ')} }}") == [0, 1, 2]


def test_what_the_programs_send_has_the_types_of_the_model(chromium, serve, report, db, job, tmp_path):
    report(*INPUTS["small"])
    with answering(db, job, echoed), browser.watched(chromium, serve(f"--models={job}").url) as page:
        page.goto("docs")
        expect(page.get_by_label("Model", exact=True)).to_have_value(job)
        answer = json.loads(printed(["bash", "-c", code(page, "curl")], tmp_path))
    assert answer["predictions"][0]["value"] == {"x": [0.5, 0.5, 0.5], "count": [0], "text": ["text"]}


def test_a_program_has_the_key_from_the_environment(chromium, serve, report, db, job, keys, tmp_path):
    file, key = keys
    report(*INPUTS["small"])
    url = serve(f"--models={job}", f"--apiKeysFile={file}").url
    with answering(db, job, echoed), browser.watched(chromium, url) as page:
        page.goto("docs")
        expect(page.locator("#sample-note")).to_contain_text("API key")
        expect(page.locator("#sample")).to_contain_text("/models/model/predict")
        page.get_by_label("API key", exact=True).fill(key)
        page.keyboard.press("Tab")
        expect(page.locator("#sample")).to_contain_text(f"/models/{job}/predict")
        environment = {"API_KEY": key, "PATH": "/usr/bin:/bin"}
        # The forms have the example of the model, too, and the sections are listed once.
        page.get_by_text("Predict instances.", exact=True).first.click()
        expect(page.locator("details[open]").get_by_label("Request body")).to_have_value(re.compile('"count"'))
        links = page.locator("#sections a").all_text_contents()
        assert len(links) == len(set(links))
        assert "predictions" in printed(["bash", "-c", code(page, "curl")], tmp_path, **environment)
        assert "0.5" in printed([sys.executable, "-c", code(page, "Python")], tmp_path, **environment)
        assert key not in page.locator("#sample").text_content()


def test_an_operation_is_sent_from_its_form(chromium, serve, report, job):
    report(*INPUTS["small"])
    with browser.watched(chromium, serve(f"--models={job}").url) as page:
        page.goto("docs")
        page.get_by_text("/models/{name}", exact=True).first.click()
        entry = page.locator("details[open]")
        entry.get_by_label("name (path)").fill(job)
        entry.get_by_role("button", name="Send").click()
        expect(entry.get_by_label("Answer", exact=True)).to_contain_text("200")
        expect(entry.get_by_label("Answer", exact=True)).to_contain_text(job)


def test_a_file_is_sent_from_its_form_and_a_form_without_a_name_is_not_sent(chromium, serve, report, job):
    report(*INPUTS["small"])
    with browser.watched(chromium, serve(f"--models={job}").url) as page:
        page.goto("docs")
        page.get_by_text("/v1/files", exact=True).first.click()
        entry = page.locator("details[open]")
        entry.get_by_label("file (form)").set_input_files({"name": "a.jsonl", "mimeType": "", "buffer": b"{}\n"})
        entry.get_by_role("button", name="Send").click()
        expect(entry.get_by_label("Answer", exact=True)).to_contain_text('"filename":"a.jsonl"')
        page.get_by_text("/v1/files", exact=True).first.click()
        page.get_by_text("/v1/files/{id}", exact=True).first.click()
        entry.get_by_role("button", name="Send").click()
        expect(entry.get_by_label("Answer", exact=True)).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_and_fields_have_names(chromium, serve, report, job, scheme):
    report(*INPUTS["small"])
    with browser.watched(chromium, serve(f"--models={job}").url, color_scheme=scheme) as page:
        page.goto("docs")
        expect(page.get_by_label("Model", exact=True)).to_have_value(job)
        page.locator("summary").first.click()
        contrasts = page.evaluate(browser.CONTRASTS)
        assert len(contrasts) > 30
        assert {text: contrast for text, contrast in contrasts.items() if contrast < 4.5} == {}
        assert page.evaluate(browser.NAMELESS) == []
