"""Encrypted models: the secret of a configuration or of Redis, also after Redis has lost all."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from cluster_serving.frontend import arguments
from cluster_serving.job.models.encryption import encrypt
from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from tests.support.fixtures.digits import assert_answers_are_right
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo


@pytest.mark.parametrize("configured", [False, True])
def test_an_encrypted_model_is_served_with_its_secret(served, db, tmp_path, configured):
    model_zoo.save_openvino_digits(tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(encrypt(path.read_bytes(), "my secret", "my salt"))
    db.delete("model_secured")
    if not configured:
        db.hset("model_secured", mapping={"secret": "my secret", "salt": "my salt"})
    settings = {"modelSecret": "my secret:my salt"} if configured else {}
    queue, _ = served(jobName="encrypted", modelPath=tmp_path, modelEncrypted=True, maxQueueLength=1000, **settings)
    assert_answers_are_right(queue, 4)
    if configured:
        assert_a_redis_that_was_emptied_is_filled_again(queue, db)


def assert_a_redis_that_was_emptied_is_filled_again(queue, db):
    """Callers over Python and HTTP get all answers, also those whose requests FLUSHALL has removed."""
    digit = model_zoo.digits_data()[0][0]
    options = [f"--redisUrl=redis://127.0.0.1:{queue.port}", "--port=0", "--grpcPort=0"]
    body = {"instances": [{"x": digit.tolist()}]}
    path = f"/models/{queue.name}/predict"
    flushed = threading.Event()

    def written():
        hashes = [db.hgetall(key) for key in ("model_secured", JobKeys(queue.name).limits, JobKeys(queue.name).slots())]
        # Heartbeats change all the time.
        once = [{field: value for field, value in fields.items() if b":beat" not in field} for fields in hashes]
        return [*once, db.sismember(JOBS_KEY, queue.name)]

    def ask_client():
        queue.predict({"x": digit}, timeout=60)

    def ask_http():
        answer = httpx.post(front.url + path, json=body, timeout=60)
        assert answer.status_code == 200, answer.text

    def keep_asking(ask):
        after = 0
        while after < 100:
            ask()
            after += flushed.is_set()

    before = written()
    front = Running(arguments.read(options, {}))
    # A front end that has never seen the job would not know it while Redis is empty.
    ask_http()
    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(keep_asking, ask) for ask in (ask_client, ask_http) * 4]
        wait_until(lambda: int(db.get(JobKeys(queue.name).answered)) > 100)
        db.flushall()
        flushed.set()
        for one in asking:
            one.result(60)
    front.stop()
    wait_until(lambda: written() == before)
    late = Running(arguments.read(options, {}))
    assert httpx.post(late.url + path, json=body, timeout=60).status_code == 200
    late.stop()
