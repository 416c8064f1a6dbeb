"""Stopping."""

import json
import signal
import subprocess
import sys
import threading

import httpx

from tests.support.echo import failing
from tests.support.waiting import wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}, {"x": [3, 4]}]})


def test_what_was_accepted_is_answered_before_the_process_ends(redis_server, report, db, job):
    report(("x", "float32", (None, None)))
    command = [
        sys.executable,
        "-m",
        "cluster_serving.frontend.main",
        f"--redisUrl={redis_server.url}",
        "--port=0",
        "--grpcEnabled=false",
    ]
    with subprocess.Popen([*command, f"--redisInputQueue={job}"], stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().split()[-1]
        answers = []
        thread = threading.Thread(target=lambda: answers.append(httpx.post(f"{url}/predict", content=BODY, timeout=30)))
        thread.start()
        wait_until(lambda: db.xlen(job) == 2)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not accepts(url))
        with failing(db, job):
            thread.join()
        assert process.wait(30) in (0, -signal.SIGTERM)
    assert [prediction["code"] for prediction in answers[0].json()["predictions"]] == ["INTERNAL"] * 2


def accepts(url):
    try:
        httpx.get(f"{url}/health/live")
    except httpx.ConnectError:
        return False
    return True
