"""Names of callers in the entries of their requests."""

import httpx
import numpy as np
import pytest

from cluster_serving.client import InputQueue
from cluster_serving.frontend.server.admission.keys import new_key
from cluster_serving.protocol.results import encode_result
from tests.support.fixtures.echo import answering


@pytest.fixture
def seen(db, job, report):
    """The names of the clients of all requests, in order."""
    report(("x", "float32", (None, None)))
    clients = []

    def answer(entry):
        clients.append(entry.client)
        return encode_result(entry.native, ["x"], [np.zeros(1, "f4")])

    with answering(db, job, answer):
        yield clients


def post(url, address="127.0.0.1", **headers):
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address)) as client:
        body = {"instances": [{"x": [1]}, {"x": [2]}]}
        return client.post(f"{url}/predict", json=body, headers=headers, timeout=30).raise_for_status()


def test_callers_without_keys_are_told_apart_by_address(serve, seen):
    url = serve().url
    post(url)
    post(url)
    post(url, "127.0.0.2")
    first, second = seen[0], seen[-1]
    assert seen == [first] * 4 + [second] * 2
    assert first != second and "127" not in first


def test_callers_with_keys_are_told_apart_by_key(serve, seen, tmp_path):
    keys = {}
    lines = []
    for name in "ab":
        keys[name], line = new_key(name)
        lines.append(line)
    (tmp_path / "keys").write_text("\n".join(lines))
    url = serve(f"--apiKeysFile={tmp_path / 'keys'}").url
    for name in "ab":
        post(url, authorization=f"Bearer {keys[name]}")
    post(url, "127.0.0.2", authorization=f"Bearer {keys['a']}")
    assert seen[0] == seen[1] == seen[4] == seen[5] != seen[2] == seen[3]


def test_the_queues_of_a_process_are_one_client(redis_server, job, seen):
    for _ in range(2):
        with InputQueue(url=redis_server.url, name=job) as queue:
            queue.predict({"x": np.zeros(1, "f4")}, timeout=30)
    assert seen[0] == seen[1] != ""
