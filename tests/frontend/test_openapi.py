"""The OpenAPI document says the truth: whatever fits it is answered as it says, and so is what does not."""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest

from cluster_serving.connectors.answer import Answer, write_answers
from cluster_serving.connectors.stream import StreamReader, create_group
from cluster_serving.frontend.api import assets, monitoring, openapi, page
from cluster_serving.frontend.api.original import http as original_http
from cluster_serving.frontend.api.requests import routes as requests
from cluster_serving.frontend.api.v2 import http as v2_http
from cluster_serving.frontend.errors import ERRORS
from cluster_serving.protocol.results import encode_result

APIS = (original_http, v2_http, requests, monitoring, openapi, page)
DOCS = Path(__file__).parents[2] / "docs"
PROTOCOL, HTTP = DOCS / "protocol.md", DOCS / "http.md"

TRUTHS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method"
)


@pytest.fixture
def zeros(db, job):
    """A consumer that answers every request with the same vector."""
    stopped = threading.Event()
    create_group(db, job)
    reader = StreamReader(db, job, "zeros-0", claim_idle_ms=60_000)

    fields = encode_result(True, ["y"], [np.zeros(3, "f4")])

    def run():
        while not stopped.is_set():
            if entries := reader.read(50, block_ms=50):
                write_answers(db, job, 60, [Answer(entry, "", fields) for entry in entries])

    thread = threading.Thread(target=run)
    thread.start()
    yield
    stopped.set()
    thread.join()


# Names that are made up would never reach the model.
CONFIG = """
[[operations]]
include-path-regex = "/(infer|predict)$"
parameters = {{ "path.name" = "{job}", "path.version" = "1" }}
"""


@pytest.mark.usefixtures("zeros")
def test_nothing_is_answered_that_is_not_documented(serve, report, job, tmp_path):
    (tmp_path / "schemathesis.toml").write_text(CONFIG.format(job=job))
    report(("x", "float32", (None, 3)))
    url = serve().url
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", TRUTHS]
    command += ["--max-examples", "5", "--phases", "examples,coverage,fuzzing", "--mode", "all", "--no-color"]
    # Or what asks for an answer within a millisecond gets 504, as documented.
    # The same as without the form in their path.
    command += ["--exclude-path-regex", "^/(bigdl|zoo-0.9)"]
    command += ["--header", "X-Timeout-Ms: 20000"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = httpx.get(f"{url}/metrics", headers={"accept": "text/plain"}).text
    for protocol, status in (("original", 200), ("v2", 200), ("v2", 400)):
        assert f'model="{job}",protocol="{protocol}",status="{status}"' in counts


def test_every_path_is_documented(serve):
    front = serve().front
    routes = [route for module in APIS for route in module.routes(front)]
    served = {(route.path, method.lower()) for route in routes for method in route.methods - {"HEAD"}}
    paths = openapi.document(keys=False)["paths"]
    described = {(path, method) for path, methods in paths.items() for method in methods}
    # Its scripts and its style are of no use to others.
    parts_of_the_page = {(path, "get") for path in assets.PATHS - {"/ui"}}
    assert served - parts_of_the_page == described


def test_the_tables_of_errors_are_complete():
    rows = re.findall(r"^\| (`[A-Z_`, ]+) \| ([\d, ]+) \| ([A-Z_, ]+) \|", PROTOCOL.read_text("utf8"), re.MULTILINE)
    told = {}
    for codes, statuses, grpc in rows:
        codes, statuses, grpc = (cell.replace("`", "").split(", ") for cell in (codes, statuses, grpc))
        told |= {
            code: (int(statuses[min(at, len(statuses) - 1)]), grpc[min(at, len(grpc) - 1)])
            for at, code in enumerate(codes)
        }
    assert told == {code: (error.http_status, error.grpc_status) for code, error in ERRORS.items()}
    table = HTTP.read_text("utf8").partition("## Errors")[2].partition("\n## ")[0]
    statuses = {
        int(status) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for status in row.split(", ")
    }
    assert statuses == {error.http_status for error in ERRORS.values()}


def test_every_schema_that_is_referred_to_is_there():
    document = openapi.document(keys=False)
    referred = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert referred == document["components"]["schemas"].keys()


def test_the_page_needs_nothing_from_elsewhere(serve):
    url = serve().url
    page = httpx.get(f"{url}/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert httpx.get(f"{url}/openapi.json").json()["openapi"] == "3.1.0"


def test_keys_are_part_of_the_document_where_they_are_needed():
    assert "security" not in openapi.document(keys=False)
    assert openapi.document(keys=True)["security"] == [{"bearer": []}, {"key": []}]
