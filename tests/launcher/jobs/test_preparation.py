"""Steps of a start: each of them is a line, without which the rest goes on."""

from pathlib import Path

import pytest
import redis

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.jobs import preparation
from cluster_serving.launcher.jobs.preparation import STEPS, prepared
from cluster_serving.launcher.jobs.services import Services
from cluster_serving.launcher.jobs.steps import (
    copied_model,
    free_names,
    hosted_models,
    inputs_folder,
    layout,
    model_secret,
)
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.targets import target_of
from cluster_serving.protocol.keys import JobKeys


@pytest.fixture
def job_config(tmp_path, job, redis_server, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "state"))
    for name in ("model", "inputs"):
        (tmp_path / name).mkdir()
    (tmp_path / "model" / "handler.py").write_text(
        "class Handler:\n    def predict(self, batch):\n        return batch\n"
    )
    keys = {"jobName": job, "modelPath": str(tmp_path / "model"), "payloadFolder": str(tmp_path / "inputs")}
    layout = {"modelParallelism": 2, "threadPerModel": 1, "maxBatchSize": 8}
    secret = {"modelEncrypted": True, "modelSecret": ("secret", "salt")}
    return Config.model_validate({"redisUrl": redis_server.url, **keys, **layout, **secret})


@pytest.fixture
def start(job_config, job, redis_server):
    """Prepares a generation; returns its configuration and options, and its store."""
    store = JobStore(redis.Redis(port=redis_server.port, decode_responses=True), job)

    def start():
        target = target_of(job_config)
        return *prepared(Services(target, None, store), job_config), store

    yield start
    store.client.delete(JobKeys(job).generations, JobKeys(job).secret)
    store.client.close()


def test_all_steps_are_made_for_a_generation(start, job_config):
    config, options, store = start()
    assert Path(options.redis.payload_folder).parent == Path(job_config.payload_folder)
    assert options.model.path != options.model.configured == job_config.model_path
    assert (config.slots, options.model_parallelism, options.model.thread_per_model) == (2, 2, 1)
    assert store.secret(config) == ("secret", "salt")
    assert store.client.exists(store.keys.secret)
    assert start()[1].redis.generation == options.redis.generation + 1


@pytest.mark.parametrize("left_out", STEPS)
def test_a_step_that_is_not_listed_is_not_made(start, job_config, monkeypatch, left_out):
    monkeypatch.setattr(preparation, "STEPS", [step for step in STEPS if step is not left_out])
    _, options, store = start()
    made = {
        model_secret.stored: bool(store.client.exists(store.keys.secret)),
        inputs_folder.provided: bool(options.redis.payload_folder),
        copied_model.kept: options.model.path != job_config.model_path,
    }
    without_trace = {layout.decided, hosted_models.found, free_names.checked}
    assert {step for step, is_made in made.items() if not is_made} == {left_out} - without_trace
