import subprocess
import sys
import threading

import pytest
import redis

from cluster_serving.launcher.jobs import lock
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.services.process import locked, this_command
from cluster_serving.protocol.keys import JobKeys

HOLDS = """
import sys
import time
import redis
from cluster_serving.launcher.jobs import lock
from cluster_serving.launcher.jobs.store import JobStore
client = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
with lock.locked(JobStore(client, sys.argv[2])):
    print("holds", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def client(redis_server):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        yield client


def test_a_command_waits_for_the_one_that_holds_the_job_and_says_which_it_is(client, job, said):
    entered = []

    def second():
        with lock.locked(JobStore(client, job)):
            entered.append(2)

    thread = threading.Thread(target=second)
    with lock.locked(JobStore(client, job)):
        thread.start()
        while not said:
            pass
        entered.append(1)
    thread.join()
    assert entered == [1, 2]
    assert said == [f"Waiting for {this_command()}, which works on job {job}"]
    assert not client.exists(JobKeys(job).command)


def test_commands_for_other_jobs_do_not_wait(client, job, said):
    with lock.locked(JobStore(client, job)), lock.locked(JobStore(client, f"{job}-2")):
        assert said == []


def test_the_lock_of_a_killed_command_expires(client, job, redis_server, said):
    command = [sys.executable, "-c", HOLDS, str(redis_server.port), job]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "holds\n"
        process.kill()
    assert 0 < client.ttl(JobKeys(job).command) <= lock.EXPIRES_S
    client.pexpire(JobKeys(job).command, 100)
    with lock.locked(JobStore(client, job)):
        assert "-c" in said[0] and f"process {process.pid} on " in said[0]


def test_a_lock_is_renewed_until_its_command_ends(client, job, monkeypatch):
    monkeypatch.setattr(lock, "EXPIRES_S", 1)
    with lock.locked(JobStore(client, job)):
        client.pexpire(JobKeys(job).command, 500)
        while client.pttl(JobKeys(job).command) < 500:
            assert client.exists(JobKeys(job).command)


def test_a_full_redis_takes_a_lock(client, job):
    limit = client.config_get("maxmemory")["maxmemory"]
    client.config_set("maxmemory", 1)
    try:
        with lock.locked(JobStore(client, job)):
            assert client.exists(JobKeys(job).command)
    finally:
        client.config_set("maxmemory", limit)


def test_the_lock_of_a_folder_names_its_command(tmp_path):
    said = []

    def second():
        with locked(tmp_path / "flink", said.append):
            pass

    thread = threading.Thread(target=second)
    with locked(tmp_path / "flink", said.append):
        thread.start()
        while not said:
            pass
    thread.join()
    assert said == [f"Waiting for {this_command()}"]
