"""The OpenAPI document says the truth: whatever fits it is answered as it says, and so is what does not."""

import subprocess
import sys
import threading

import httpx
import numpy as np
import pytest

from cluster_serving.client.protocol import encode_result
from cluster_serving.connectors.answer import Answer, write_answers
from cluster_serving.connectors.stream import StreamReader, create_group
from cluster_serving.frontend import openapi

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


@pytest.mark.usefixtures("zeros")
def test_nothing_is_answered_that_is_not_documented(serve, report, tmp_path):
    report(("x", "float32", (None, None)))
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{serve().url}/openapi.json", "--checks", TRUTHS]
    command += ["--max-examples", "5", "--phases", "examples,coverage,fuzzing", "--mode", "all", "--no-color"]
    # Or what asks for an answer within a millisecond gets 504, as documented.
    command += ["--header", "X-Timeout-Ms: 20000"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
