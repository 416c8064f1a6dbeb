"""Models of a job that serves several, as the commands keep them in Redis."""

import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import redis

from cluster_serving.client import InputQueue, ModelError, OutputQueue
from cluster_serving.job.options import HostedOptions, JobOptions, ModelOptions, RedisOptions
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import hosted, model_copy, retiring
from cluster_serving.launcher.jobs.services import Services
from cluster_serving.launcher.jobs.steps import free_names
from cluster_serving.launcher.jobs.steps.base import Draft
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.figures.metrics import ANSWERED
from cluster_serving.protocol.generations import SERVING, Generation
from cluster_serving.protocol.hosting.control import UNLOADED
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport


@pytest.fixture
def store(job, redis_server):
    """The store of a job that serves two models."""
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        store = JobStore(client, job)
        hosted.announce(store, options(job, "a", "b"))
        yield store
        for one in reversed(hosted.stores(store)):
            client.delete(*one.keys.lasting(()))


@pytest.fixture
def config(job, redis_server):
    """The configuration of that job."""
    return Config(redisUrl=f"localhost:{redis_server.port}", jobName=job, modelPath="models")


def options(job, *names):
    made = JobOptions("start", ModelOptions("/models"), RedisOptions("redis://localhost", job=job))
    models = (HostedOptions(f"{job}-{name}", made.model, made.batch, made.image, "", 0, "1", False) for name in names)
    return replace(made, hosted=tuple(models))


def test_a_start_announces_the_models_and_keeps_what_is_known_of_them(store, job):
    assert [(one.name, one.state) for one in hosted.read(store)] == [(f"{job}-a", "loading"), (f"{job}-b", "loading")]
    ready = SlotReport("", "ready", engine="XGBoost", error=None).to_json()
    store.client.hset(store.keys.models, f"{job}-a", ready)
    store.client.set(JobKeys(f"{job}-a").answered, 7)
    hosted.announce(store, options(job, "a", "b"))
    first = store.models()[f"{job}-a"]
    assert (first.state, first.engine) == ("loading", "XGBoost")
    assert hosted.read(store)[0].answered == 0


def test_a_model_that_has_gone_leaves_nothing_but_what_somebody_may_want(store, job, config, caplog):
    gone, kept = JobKeys(f"{job}-a"), JobKeys(f"{job}-b")
    for keys in (gone, kept):
        store.client.hset(keys.stats(), "requests", 1)
        store.client.hset(keys.slots(), "0", SlotReport("", "ready").to_json())
    store.client.xadd(kept.dead_letters, {"uri": "r"})
    assert hosted.announce(store, options(job, "c")) == [gone.job, kept.job]
    assert [report.state for report in store.models().values()] == [UNLOADED, UNLOADED, "loading"]
    for name in (gone.job, kept.job):
        hosted.remove(store, config, name, "models")
    assert not store.client.exists(*(key for keys in (gone, kept) for key in (keys.stats(), keys.slots(), keys.record)))
    assert store.client.xlen(kept.dead_letters) == 1
    assert f"cluster-serving-cli forget {job}-b removes them" in caplog.text
    assert [*store.models()] == [f"{job}-c"] and 0 < store.client.ttl(gone.limits) <= 24 * 3600
    store.client.delete(*gone.lasting(()), *kept.lasting(()))


def test_requests_for_a_model_that_a_start_has_not_any_more_are_answered(store, job, config, redis_server):
    where, name = {"port": redis_server.port}, f"{job}-a"
    with InputQueue(**where, name=name) as queue, OutputQueue(**where, name=name) as results:
        queue.enqueue("before", x=np.float32(1), priority="high")
        hosted.announce(store, options(job, "b"))
        queue.enqueue("meanwhile", x=np.float32(1))
        retiring.answer(config, name)
        for uri in ("before", "meanwhile"):
            with pytest.raises(ModelError, match=f"model '{name}' was removed from the job {job}"):
                results.query(uri, timeout=0)
        for send in (queue.predict, partial(queue.enqueue, "after")):
            with pytest.raises(ModelError, match=f"model '{name}' was removed from the job {job}"):
                send({"x": np.float32(1)})
        [refused] = queue.predict_many([{"x": np.float32(1)}])
        assert isinstance(refused.error, ModelError)
    assert not store.client.exists(*JobKeys(name).streams)
    hosted.remove(store, config, name, "models")
    store.client.delete(*JobKeys(name).lasting(()))


def test_a_model_is_found_by_its_name_with_its_job(store, job):
    model = JobStore(store.client, f"{job}-a")
    assert (hosted.host_of(model), hosted.host_of(store)) == (job, "")
    with pytest.raises(LaunchError, match=f"^{job}-a is a model of the job {job}, and not a job; stop {job}$"):
        hosted.refuse(model, "stop {host}")
    hosted.refuse(store, "stop {host}")


def test_totals_of_a_job_are_those_of_its_models_and_end_with_their_generation(store, job):
    store.put(Generation(3, SERVING, "start"))
    for name, count in (("a", 2), ("b", 3)):
        store.client.hset(JobKeys(f"{job}-{name}").stats(3), ANSWERED.name, count)
    assert hosted.stats(store, 3).requests == 5
    store.end(3)
    assert hosted.stats(store, 3).requests == 0
    assert not store.client.exists(JobKeys(f"{job}-a").stats(3))


def test_a_name_that_is_taken_is_refused(store, job):
    other = f"{job}-other"
    services = Services(None, None, JobStore(store.client, other))

    def check(name):
        config = SimpleNamespace(model_path="/models", redis_url="localhost:6379")
        return free_names.checked(Draft(services, config, options(job, name)))

    with pytest.raises(LaunchError, match=f"^the job {job} serves a model of the name {job}-a, too; rename the subf"):
        check("a")
    with pytest.raises(LaunchError, match=f"^the model {job}-other has the name of a job; rename its subfolder of /mo"):
        services.store.note("stopped")
        check("other")
    assert check("free")
    store.client.delete(*JobKeys(other).lasting(()))


def test_a_model_whose_keys_the_user_of_redis_may_not_use_is_named(store, job, redis_server):
    rights = [f"~{job}", f"~{job}:*", f"~{job}-a:*"]
    store.client.execute_command("ACL", "SETUSER", "fenced", "reset", "on", "nopass", "+@all", *rights)
    try:
        address = f"redis://fenced:any@127.0.0.1:{redis_server.port}"
        with redis.Redis.from_url(address, decode_responses=True) as client:
            hosted.check_free(JobStore(client, job), [f"{job}-a"], "/models")
            with pytest.raises(LaunchError, match=f"may not use the keys of the model {job}-b .*it needs ~{job}-b "):
                hosted.check_free(JobStore(client, job), [f"{job}-a", f"{job}-b"], "/models")
    finally:
        store.client.execute_command("ACL", "DELUSER", "fenced")


def test_the_version_of_a_model_counts_its_changes(store, job, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.onnx").write_text("first")
    made = options(job, "a")
    [one] = made.hosted
    one = replace(one, model=ModelOptions(str(folder)))

    def start(given):
        counted = hosted.with_count(store, given)
        hosted.announce(store, replace(made, hosted=(counted,)))
        return counted.version

    first = start(one)
    # A start of the job, also with a copy of the files, is no change of the model.
    copied = shutil.copytree(folder, tmp_path / "copy")
    assert start(replace(one, model=ModelOptions(str(copied)))) == first
    (folder / "model.onnx").write_text("second")
    assert int(start(one)) == int(first) + 1
    (folder / "config.yaml").write_text("maxBatchSize: 2\n")
    assert int(start(one)) == int(first) + 2
    assert start(replace(one, numbered=True, version="7")) == "7"


def test_a_change_copies_one_model_and_removes_the_copy_before(job, tmp_path):
    source, started = tmp_path / "a", tmp_path / f"{job}@1"
    for folder in (source, started / "a"):
        folder.mkdir(parents=True)
        (folder / "model.onnx").touch()
    made = options(job, "a")
    model = replace(made.model, path=str(started), configured=str(tmp_path))
    made = replace(made, model=model, hosted=(replace(made.hosted[0], model=ModelOptions(str(started / "a"))),))

    def change(before):
        folder = model_copy.of_model(before, source)
        now = replace(before, hosted=(replace(before.hosted[0], model=ModelOptions(str(folder))),))
        model_copy.tidy_models(before, now)
        return folder, now

    first, changed = change(made)
    second, _ = change(changed)
    # A slot that has lost all changes starts with the first one.
    assert sorted(started.iterdir()) == sorted([started / "a", second]) and first.name.startswith("a@")
    (source / "model.onnx").unlink()
    (source / "model.onnx").symlink_to("nothing")
    with pytest.raises(LaunchError, match="no copy of .* can be made: .*; try again when its files are complete"):
        model_copy.of_model(changed, source)
    assert sorted(started.iterdir()) == sorted([started / "a", second])
    # Where no copy was made at the start, none is made.
    assert model_copy.of_model(replace(made, model=ModelOptions(str(tmp_path))), source) == source
