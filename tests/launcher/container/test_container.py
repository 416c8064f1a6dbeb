"""The entry point of the images: what it refuses, and what it says is missing."""

import os
import subprocess
import sys

import pytest
import redis

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.container import __main__ as container
from cluster_serving.launcher.container import checks, health, roles
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.generations import LAST, SERVING, Generation, Generations
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SILENT_AFTER_S, SlotReport


def run(role, tmp_path, **environment):
    command = [sys.executable, "-m", "cluster_serving.launcher.container", role]
    variables = os.environ | {"CLUSTER_SERVING_HOME": str(tmp_path / "home")} | environment
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)


def test_a_wrong_role_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["container", "worker"])
    with pytest.raises(SystemExit, match="expected one argument: jobmanager, taskmanager, application"):
        container.main()


def test_a_container_without_a_role_is_healthy(monkeypatch, tmp_path):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path))
    assert health.problem() is None


def test_flink_that_does_not_answer_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path))
    monkeypatch.setenv("FLINK_PROPERTIES", "rest.port: 1")
    roles.role_file().parent.mkdir()
    roles.role_file().write_text("jobmanager")
    assert health.problem() == "Flink does not answer at http://localhost:1"


def test_an_application_without_its_configuration_says_so(tmp_path):
    ran = run("application", tmp_path, CONFIG=str(tmp_path / "config.yaml"))
    assert ran.returncode
    assert f"error: {tmp_path / 'config.yaml'} does not exist" in ran.stderr


def test_an_application_whose_redis_does_not_answer_says_so(tmp_path):
    (tmp_path / "config.yaml").write_text("modelPath: /nowhere\nredisUrl: redis://:secret@localhost:1\n")
    ran = run("application", tmp_path, CONFIG=str(tmp_path / "config.yaml"))
    assert ran.returncode
    assert "error: Redis at redis://***@localhost:1 cannot be used" in ran.stderr
    assert "secret" not in ran.stderr


def test_cores_need_the_model(tmp_path):
    (tmp_path / "config.yaml").write_text("modelPath: /nowhere\ncoreNumberPerMachine: 4\n")
    ran = run("application", tmp_path, CONFIG=str(tmp_path / "config.yaml"))
    assert "coreNumberPerMachine depends on the model's engine, and /nowhere is not here" in ran.stderr


def test_a_home_that_cannot_be_written_is_named(tmp_path):
    # A file in place of the folder stops root too.
    (tmp_path / "home").write_text("")
    ran = run("jobmanager", tmp_path)
    assert ran.returncode
    assert f"error: {tmp_path / 'home' / 'flink'} cannot be written" in ran.stderr
    assert "CLUSTER_SERVING_HOME" in ran.stderr


def test_a_missing_library_of_python_is_named(monkeypatch):
    monkeypatch.setattr("find_libpython.find_libpython", lambda: None)
    with pytest.raises(LaunchError, match=r"libpython3\.\d+\.so is missing.*executionMode: process"):
        checks.can_embed_python()


def test_a_missing_async_timeout_is_named_before_redis_is_imported(tmp_path):
    # As on Python 3.11.2, in an environment that a later Python has made.
    program = (
        "import sys; sys.version_info = (3, 11, 2, 'final', 0); sys.argv = ['container', 'health']\n"
        "sys.modules['async_timeout'] = None\n"
        "from cluster_serving.launcher.container.__main__ import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode
    assert "error: redis-py needs async_timeout on Python" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_job_of_a_container_serves_where_commands_have_started_and_stopped_it_before(
    redis_server, db, job, tmp_path
):
    """Its slots read only if Redis knows their generation."""
    (tmp_path / "config.yaml").write_text(f"modelPath: /m\njobName: {job}\nredisUrl: localhost:{redis_server.port}\n")
    db.hset(JobKeys(job).generations, mapping={LAST: 5, "5": Generation(5, SERVING).to_json()})
    ran = run("options", tmp_path, CONFIG=str(tmp_path / "config.yaml"), OPTIONS_FILE=str(tmp_path / "options.json"))
    assert (ran.returncode, ran.stderr) == (0, "")
    options = JobOptions.from_json((tmp_path / "options.json").read_text())
    now = Generations.read(db.hgetall(JobKeys(job).generations))
    assert [(each.number, each.role, each.submission) for each in now.all.values()] == [
        (6, SERVING, options.submission)
    ]
    assert options.redis.generation == 6
    db.delete(JobKeys(job).generations, JobKeys(job).slots())


def test_the_job_of_a_container_waits_for_the_end_of_the_slots_of_another_one_and_leaves_those_that_go_on(
    redis_server, db, job
):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        store = JobStore(client, job)
        slot = SlotReport("another", "ready", "Echo", attempt="first")
        store.write(store.keys.slots(), ["0", slot.to_json(), "0:beat", f"first {store.now() + 60}"])
        with pytest.raises(LaunchError, match="runs in another Flink"):
            roles._await_end(store, 0.5)
        store.write(store.keys.slots(), ["0:beat", f"first {store.now() - SILENT_AFTER_S + 1}"])
        roles._await_end(store)
        assert [report.state for report in store.slots()] == ["silent"]
