"""What one slot of several makes of a model that changes or leaves while it reads and computes, step by step."""

import time
from dataclasses import replace

import numpy as np
import pytest

from cluster_serving.client import InputQueue
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.job.hosting import changes
from cluster_serving.job.hosting.change import Change
from cluster_serving.job.hosting.leaving import Left
from cluster_serving.job.hosting.model import HostedModel
from cluster_serving.job.hosting.models import HostedModels
from cluster_serving.job.hosting.serving import Serving
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.hosting.orders import CHANGED, KEPT_OUT, OPTIONS
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures.flink_context import Context
from tests.support.fixtures.handled import NO_NEGATIVES, write
from tests.support.fixtures.running_slot import RunningJob
from tests.support.fixtures.waiting import wait_until

KEPT = {OPTIONS: "", KEPT_OUT: "", CHANGED: "1.0"}
GATHERS = "greedyBatching: false\nbatchTimeout: 600000"


@pytest.fixture(scope="module")
def options(redis_server, tmp_path_factory):
    """Options of a job of two slots, none of which runs."""
    root = tmp_path_factory.mktemp("repository")
    for name in ("stays", "leaves", "gathers"):
        (root / name).mkdir()
        write(root / name, NO_NEGATIVES)
    (root / "gathers" / "config.yaml").write_text(GATHERS)
    settings = {"jobName": "steps", "modelPath": root, "modelParallelism": 2, "startTimeout": 60}
    job = RunningJob(redis_server, tmp_path_factory.mktemp("config"), **settings)
    job.start()
    job.stop_slots()
    with job.place() as place:
        yield place.options
    job.stop()


@pytest.fixture
def models(options, db):
    # Nothing writes answers: the requests of other tests are pending.
    for name in ("stays", "leaves", "gathers"):
        db.delete(*JobKeys(name).streams)
        create_groups(db, name)
    loaded = HostedModels(options, SharedSlot.of(options.redis.name, 0), Context())
    yield loaded
    loaded.close()


@pytest.fixture
def serving(options, models):
    made = Serving(options, SharedSlot.of(options.redis.name, 0), models, (), Context(), is_cancelled=lambda: True)
    # Its reads wait in Redis from now on.
    assert uris(made) == []
    yield made
    made.close()


@pytest.fixture
def send(redis_server):
    def enqueue(name, uri):
        with InputQueue(port=redis_server.port, name=name) as queue:
            queue.enqueue(uri, x=np.float32(1))

    return enqueue


def uris(serving):
    """Requests that a turn of a slot computes."""
    return [request.entry.uri for batch in serving.turn() for request in batch.requests]


def test_a_request_that_a_read_has_found_for_a_model_that_left_goes_to_another_slot(options, models, serving, send):
    one = models.options_of["leaves"]
    models.plan(models.failed(one, ModelError("gone"), leaves=True), one, KEPT)
    send("leaves", "late")
    assert uris(serving) == []
    name, [entry] = Left.of(options.redis.name).take({"leaves"})
    assert (name, entry.uri) == ("leaves", "late")


def test_a_request_that_a_read_has_found_for_a_model_that_left_is_computed_when_it_is_back(models, serving, send):
    one = models.options_of["leaves"]
    models.plan(Change("leaves", None, None), None, {})
    send("leaves", "waits")
    assert uris(serving) == []
    models.plan(Change("leaves", models.load(one), None), one, KEPT)
    assert uris(serving) == ["waits"]


def test_requests_that_come_while_a_model_changes_are_gathered_as_the_new_one_wants(models, serving, send):
    one = models.options_of["gathers"]
    send("gathers", "first")
    wait_until(lambda: uris(serving) == [] and serving.names)
    models.plan(Change("gathers", models.load(models.options_of["stays"]), None), one, KEPT)
    found = []
    for batch in serving.turn():
        found += [request.entry.uri for request in batch.requests]
        if found == ["first"]:
            send("gathers", "second")
            # The other slots get what a slot in a long batch has read; here this one gets it itself.
            wait_until(lambda: serving.is_late)
            time.sleep(0.05)
            serving.leave()
    assert found == ["first", "second"]


def test_a_model_may_be_put_aside_while_another_thread_plans_a_change(models, monkeypatch):
    class Name(str):
        def __ne__(self, other):
            models.plan(Change("later", None, None), None, {})
            return super().__ne__(other)

    monkeypatch.setattr(HostedModel, "problem", lambda self: "it hangs")
    models.plan(Change(Name("stays"), None, None), None, {})
    models.check("leaves")
    assert [change.name for change in models.unfinished] == ["leaves"]


def test_a_new_model_may_be_put_aside_at_its_first_request(models, monkeypatch):
    one = replace(models.options_of["leaves"], name="new")
    models.plan(Change("new", models.load(one), None), one, KEPT)
    models.apply(models.due)
    monkeypatch.setattr(HostedModel, "problem", lambda self: "it hangs")
    models.check("new")
    models.apply(models.due)
    assert models.kept["new"][KEPT_OUT] == "it is put aside: it hangs"


def test_a_model_that_is_removed_while_it_is_put_aside_holds_up_no_change(options, models):
    gone = Change("gone", None, None)
    gone.made.set()
    models.unfinished.append(gone)
    thread = changes.Changes(options, models)
    try:
        wait_until(lambda: not models.unfinished)
    finally:
        thread.close()
