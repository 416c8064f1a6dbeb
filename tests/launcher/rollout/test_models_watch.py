"""Changes of the subfolders of a job that serves several models: which are due."""

import shutil

import pytest
import redis
import yaml

from cluster_serving.launcher.config import file, repository
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.jobs import hosted
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.rollout.model_watch import SETTLED_S
from cluster_serving.launcher.rollout.models_watch import ModelsWatch
from cluster_serving.protocol.hosting.control import UNLOADED
from cluster_serving.protocol.hosting.orders import REFUSED_CONTENT
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport


@pytest.fixture
def config(tmp_path, job):
    for path in ("a/model.onnx", "b/2/model.onnx", "c/model.onnx"):
        (tmp_path / "models" / job / path).parent.mkdir(parents=True)
        (tmp_path / "models" / job / path).touch()
    for name in "abc":
        (tmp_path / "models" / job / name).rename(tmp_path / "models" / f"{job}-{name}")
    (tmp_path / "models" / job).rmdir()
    (tmp_path / "models" / f"{job}-b" / "config.yaml").write_text("modelVersion: 2\n")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"modelPath": "models", "jobName": job}))
    return file.read(tmp_path / "config.yaml")


@pytest.fixture
def store(config, job, redis_server):
    """The store of a job that serves the models as they are."""
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        store = JobStore(client, job)
        options = repository.with_models(config, job_options(config, "start"), repository.find(config).names)
        hosted.announce(store, options)
        yield store
        for one in reversed(hosted.stores(store)):
            client.delete(*one.keys.lasting(()))


@pytest.fixture
def due(config, store, job):
    """Returns which models are due at a second, by the last part of their names."""
    watch = ModelsWatch()

    def look(second, **states):
        models = store.models() | {f"{job}-{name}": SlotReport("", state) for name, state in states.items()}
        found = watch.due(config, store, models, second)
        for name in found:
            watch.note_failed(name)
        return [name.removeprefix(f"{job}-") for name in found]

    return look


def test_subfolders_that_come_change_or_go_are_due_once_they_have_settled(tmp_path, job, due):
    models = tmp_path / "models"
    assert due(0) == due(2 * SETTLED_S) == []
    (models / f"{job}-a" / "model.onnx").write_text("changed")
    (models / f"{job}-b" / "3").mkdir()
    shutil.copy(models / f"{job}-b" / "2" / "model.onnx", models / f"{job}-b" / "3")
    shutil.rmtree(models / f"{job}-c")
    shutil.copytree(models / f"{job}-a", models / f"{job}-d")
    assert due(20) == []
    # The model with a version of its own has it still.
    assert due(20 + SETTLED_S) == ["a", "c", "d"]
    # None of them could be changed: not again, before the files change.
    assert due(60) == due(70) == []
    (models / f"{job}-d" / "config.yaml").write_text("maxBatchSize: 2\n")
    assert due(80) == [] and due(90) == ["d"]
    (models / f"{job}-d").rename(tmp_path / "away")
    assert due(100) == []
    (tmp_path / "away").rename(models / f"{job}-d")
    assert due(110) == ["d"]


def test_what_was_refused_or_unloaded_stays_so(tmp_path, job, due, store, config):
    (tmp_path / "models" / f"{job}-a" / "model.onnx").write_text("changed")
    seen = repository.with_models(config, job_options(config, "start"), [f"{job}-a"]).hosted[0]
    store.client.hset(JobKeys(f"{job}-a").record, REFUSED_CONTENT, hosted.content(seen))
    (tmp_path / "models" / f"{job}-c" / "model.onnx").write_text("changed")
    assert due(0, c=UNLOADED) == due(10, c=UNLOADED) == []
    shutil.rmtree(tmp_path / "models" / f"{job}-c")
    assert due(20, c=UNLOADED) == [] and due(30, c=UNLOADED) == ["c"]
    # A start with the same files, as for another number of slots, and a Redis that has lost its data change nothing.
    options = repository.with_models(config, job_options(config, "start"), [f"{job}-b"])
    served = store.client.hgetall(JobKeys(f"{job}-b").record)
    store.client.hset(JobKeys(f"{job}-b").record, REFUSED_CONTENT, "of now")
    hosted.announce(store, options)
    assert store.client.hget(JobKeys(f"{job}-b").record, REFUSED_CONTENT) == "of now"
    assert served.items() <= store.client.hgetall(JobKeys(f"{job}-b").record).items()
    store.client.delete(JobKeys(f"{job}-a").record, JobKeys(f"{job}-b").record)
    kept = {"a": "ready", "b": "ready"}
    assert due(40, **kept) == due(50, **kept) == []
