"""Usual questions, typed into the search of the site: the first page that comes up has the answer."""

import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler
from urllib.parse import quote_plus

import pytest

from tests.support.fixtures import browser
from tests.support.fixtures.http_server import HttpServer
from tests.support.fixtures.pages import DOCS, ROOT

ANSWERS = {
    "out of memory": "how-to/faq.html#out-of-memory",
    "use a GPU": "how-to/gpus.html",
    "model too slow": "how-to/debugging.html",
    "no answer": "how-to/debugging.html#no-answer",
    "stuck request": "how-to/debugging.html",
    "upgrade without downtime": "how-to/upgrade.html",
    "batch size": "how-to/faq.html#which-batch-size",
    "API key": "how-to/security.html",
    "HTTPS": "how-to/security.html",
    "Kubernetes install": "how-to/deploy/kubernetes.html",
    "Prometheus metrics": "how-to/monitoring.html",
    "convert PyTorch model": "how-to/convert-models.html",
    "several models on one server": "how-to/faq.html#can-there-be-several-models",
    "canary": "how-to/versions.html",
    "autoscale": "how-to/changes.html",
    "payload log": "how-to/traces.html",
    "TensorBoard": "how-to/monitoring.html",
    "drainSeconds": "how-to/http-front-end.html",
    "watchModel": "how-to/faq.html#how-is-a-new-model",
    "cancel request": "how-to/python-client.html",
    "timeout": "how-to/limits.html#timeouts-and-deadlines",
    "dead letters": "how-to/dead-letters.html",
    "Java client": "how-to/javascript-java.html",
    "embeddings": "how-to/texts-and-tables.html#embeddings",
    "score a Parquet file": "how-to/scoring.html",
    "migrate from TorchServe": "coming-from/torchserve.html",
    "rate limit": "reference/http-options.html",
    "CORS": "reference/http-options.html",
    "change the port": "how-to/faq.html#which-ports-are-used",
    "request priority": "how-to/limits.html#priority",
    "custom preprocessing": "how-to/handlers.html",
    "LLM": "how-to/openai.html",
    "streaming tokens": "how-to/openai.html#streaming-tokens",
    "Redis password": "how-to/security.html#users-and-passwords",
    "memory usage": "how-to/faq.html#out-of-memory",
    "which Python version": "how-to/faq.html#which-python-version",
    "health check": "how-to/http-front-end.html#health",
    "load balancer": "how-to/http-front-end.html",
    "S3 model": "how-to/model-stores.html",
    "rollback": "how-to/faq.html#how-do-i-roll-back",
    "labels": "how-to/http-requests.html#classes-and-labels",
    "offline": "how-to/faq-models.html#does-it-run-offline",
    "no internet": "how-to/faq-models.html#does-it-run-offline",
    "batch scoring parquet": "how-to/scoring.html",
    "categorical columns xgboost": "how-to/texts-and-tables.html",
    "roll back to the previous version": "how-to/faq.html#how-do-i-roll-back",
    "my model returns wrong results": "how-to/faq.html#my-model-returns-wrong-results",
    "How can I limit the CPUs that it takes?": "how-to/performance.html",
    "How do I send a photo with curl?": "how-to/http-requests.html",
    "nginx": "how-to/http-front-end.html#behind-nginx",
    "reverse proxy": "how-to/http-front-end.html#behind-nginx",
    "run in Docker": "how-to/deploy/docker.html",
    "Windows": "how-to/faq-models.html#does-it-run-on-windows",
    "run inference over a large csv file": "how-to/scoring.html",
    "how to go back to an older model version": "how-to/faq.html#how-do-i-roll-back",
    "container exits with code 137": "how-to/faq.html#out-of-memory",
    "ModuleNotFoundError in handler": "how-to/handler-models.html#modules",
    "install extra pip dependencies for handler": "how-to/handler-models.html#packages",
    "504 gateway timeout": "how-to/http-requests.html#errors",
    "503 service unavailable": "how-to/http-requests.html#errors",
    "send numpy array to rest api": "how-to/http-requests.html",
    "resize image on the server": "how-to/configure.html",
    "serve pytorch state_dict without torchscript": "how-to/convert-models.html",
    "sklearn pipeline saved with joblib": "how-to/faq-models.html#are-pickle",
    "string input to sklearn model": "how-to/texts-and-tables.html",
    "number of workers per model": "how-to/all-cores.html",
    "set number of threads for onnxruntime": "how-to/all-cores.html",
    "horizontal pod autoscaler": "how-to/deploy/kubernetes.html#scale",
    "load model from google cloud storage bucket": "how-to/model-stores.html",
    "minio endpoint url": "how-to/model-stores.html",
    "bearer token": "how-to/security.html#api",
    "client certificate mutual tls": "how-to/security.html#tls",
    "redis cluster support": "how-to/redis-failover.html",
    "OOM command not allowed when used memory": "how-to/faq.html#queuefull",
    "how to unload models to free memory": "how-to/faq-models.html#is-gpu-memory",
    "list loaded models": "how-to/status.html",
    "server sent events streaming response": "how-to/asynchronous.html#answers",
    "openai compatible embeddings endpoint": "how-to/openai.html",
    "trace request id in logs": "how-to/traces.html",
    "opentelemetry jaeger": "how-to/traces.html",
    "add custom metrics": "how-to/handler-models.html#custom",
    "zero downtime model update": "how-to/changes.html",
    "mirror traffic to new model": "how-to/versions.html#shadow",
    "call the model from a web page with fetch": "how-to/javascript-java.html",
    "java client example": "how-to/javascript-java.html",
    "select only one of the outputs of the model": "how-to/configure.html",
    "apply softmax to the output": "how-to/configure.html#filters",
    "air gapped installation": "how-to/faq-models.html#does-it-run-offline",
    "apple silicon arm64": "how-to/faq-models.html#does-it-run-on-a-mac",
    "rate limit per user": "reference/http-options.html",
    "are failed requests retried": "how-to/faq.html#are-requests",
    "avoid processing the same request twice": "how-to/asynchronous.html#send",
    "encrypt model weights": "how-to/model-stores.html#encrypted-models",
    "yarn queue and memory of containers": "how-to/deploy/yarn.html",
    "unsupported operator custom op onnx": "how-to/convert-models.html#operators",
    "load testing tool": "how-to/all-cores.html#test",
    "audio file input": "how-to/faq-models.html#how-is-a-file",
    "how to stop the server": "how-to/faq.html#how-is-everything",
}
"""By question, the beginning of the address of the page or paragraph that answers it."""


class Files(SimpleHTTPRequestHandler):
    """Sends the files of a folder, and logs nothing."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of the site in a browser, with the search open."""
    folder = tmp_path_factory.mktemp("search")
    shutil.copytree(DOCS, folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    subprocess.run([sys.executable, "-m", "zensical", "build"], cwd=folder, check=True, capture_output=True)
    with HttpServer(partial(Files, directory=folder / "site")) as server, browser.chromium() as started:
        page = started.new_page()
        page.goto(f"{server.url}/index.html")
        page.get_by_role("button", name="Search").first.click()
        yield page


@pytest.fixture
def search(page):
    """The search of the site: gives the addresses that come up for some words, best first."""

    def ask(words):
        # The links of earlier results would get the new words before the new results come.
        page.get_by_role("combobox", name="Search").fill("")
        page.get_by_role("option").first.wait_for(state="detached")
        page.get_by_role("combobox", name="Search").fill(words)
        marked = f"?h={quote_plus(words)}"
        page.locator(f"[role=option][href*='{marked}']").first.wait_for()
        found = page.get_by_role("option").evaluate_all("links => links.map(link => link.href)")
        return [link.removeprefix(page.url.removesuffix("index.html")).replace(marked, "") for link in found]

    return ask


def test_words_that_no_page_has_find_the_paragraph_for_which_users_say_them(page, search):
    question = "OOMKilled"
    assert not any(question.lower() in text.read_text("utf8").lower() for text in DOCS.rglob("*.md"))
    assert search(question)[0].startswith("how-to/faq.html#out-of-memory")
    shown = page.get_by_role("option").first.inner_text().lower()
    assert "out of memory" in shown
    assert question.lower() not in shown


@pytest.mark.parametrize("question", ANSWERS)
def test_the_first_page_that_comes_up_has_the_answer(search, question):
    found = search(question)
    assert found[0].startswith(ANSWERS[question]), found[:5]
