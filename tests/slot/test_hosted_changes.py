"""Models of a job that serves several, changed while it runs: no request fails, and the others go on."""

import os
import shutil
import socket
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cluster_serving.client import InferenceTimeout, InputQueue, ModelError, OutputQueue
from cluster_serving.connectors.slot.attempts import Attempt
from cluster_serving.connectors.slot.ends import STOPPED
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.job.hosting import deaths, wakeups
from cluster_serving.job.hosting.models import HostedModels
from cluster_serving.job.hosting.votes import BEGUN, DONE
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import hosted, retiring
from cluster_serving.launcher.rollout import model_change
from cluster_serving.protocol.hosting import orders
from cluster_serving.protocol.hosting.control import LOAD, UNLOADED
from cluster_serving.protocol.hosting.orders import CONTENT, DEATHS, KEPT_OUT, OPTIONS, REFUSED, REMOVE, VERSION, Order
from cluster_serving.protocol.keys import GROUP, JobKeys
from tests.support.fixtures.running_slot import RunningJob
from tests.support.fixtures.waiting import wait_until

TIMES = """
    import time

    class Handler:
        inputs = {{"x": "float32"}}
        outputs = {{"y": "float32"}}

        def __init__(self):
            time.sleep({load})

        def predict(self, batch):
            if batch["x"].min() < 0:
                time.sleep(3600)
            return {{"y": batch["x"] * {factor}}}
    """


def write(root, name, factor, config="inferenceTimeout: 0.3", load=0):
    """Write, or change, a model that multiplies, and hangs on a negative number."""
    (root / name).mkdir(exist_ok=True)
    (root / name / "handler.py").write_text(textwrap.dedent(TIMES.format(factor=factor, load=load)))
    (root / name / "config.yaml").write_text(config)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    for name, factor in {"steady": 2, "moves": 2, "leaves": 3}.items():
        write(folder, name, factor)
    return folder


@pytest.fixture(scope="module")
def job(redis_server, root, tmp_path_factory):
    """The job `store`, which serves a folder of models."""
    settings = {"jobName": "store", "modelPath": root, "maxBatchSize": 4, "startTimeout": 60}
    job = RunningJob(redis_server, tmp_path_factory.mktemp("config"), **settings)
    with pytest.MonkeyPatch.context() as patch:
        # Each change wakes the slot: none is found because the slot looks now and then.
        patch.setattr(wakeups, "_BLOCK_S", 600)
        job.start()
        yield job
        job.stop()


@pytest.fixture
def change(job):
    """Changes a model as a command does."""

    def make(name, how=model_change.load_in, earlier=None):
        with job.place(earlier) as place:
            return how(place, name)

    return make


@pytest.fixture
def ask(redis_server):
    def predict(name, value=1.0, timeout=60):
        with InputQueue(port=redis_server.port, name=name) as queue:
            return float(queue.predict({"x": np.float32(value)}, timeout=timeout))

    return predict


@pytest.fixture
def comes(root, change):
    """Name of a model that is served since the job runs."""
    write(root, "comes", 5)
    change("comes")
    return "comes"


def states(job):
    with job.place() as place:
        return {one.name: (one.state, one.error) for one in hosted.read(place.store)}


def test_a_changed_model_takes_over_between_two_batches(root, change, ask, redis_server):
    answers, ended = {"steady": [], "moves": []}, threading.Event()

    def send(name):
        with InputQueue(port=redis_server.port, name=name) as queue:
            while not ended.is_set():
                answers[name] += [float(y) for y in queue.predict_many([{"x": np.float32(1)}] * 20, timeout=60)]

    clients = [threading.Thread(target=send, args=(name,)) for name in answers for _ in range(2)]
    for client in clients:
        client.start()
    # The new one takes a second to load, in which the others are asked on.
    write(root, "moves", 20, load=1)
    before = len(answers["steady"])
    report, _ = change("moves")
    during = len(answers["steady"])
    wait_until(lambda: answers["moves"] and answers["moves"][-1] == 20, 30)
    ended.set()
    for client in clients:
        client.join()
    assert report.version == "2" and during > before
    assert set(answers["steady"]) == {2} and set(answers["moves"]) == {2, 20}
    assert ask("moves") == 20


def test_a_model_that_cannot_be_loaded_leaves_the_one_that_serves(root, job, change, ask, db):
    write(root, "moves", 20)
    first = int(change("moves")[0].version)
    write(root, "moves", "1 +")
    with pytest.raises(ModelError, match="invalid syntax"):
        change("moves")
    assert ask("moves") == 20
    state, error = states(job)["moves"]
    assert state == "ready" and error.startswith("the new files are not served: ") and "invalid syntax" in error
    write(root, "moves", 21, config="redisUrl: localhost:1")
    with pytest.raises(ModelError, match="redisUrl belongs to the job"):
        change("moves")
    write(root, "moves", 22)
    report, before = change("moves")
    assert int(report.version) == first + 1 and ask("moves") == 22
    assert not db.hexists(JobKeys("moves").record, REFUSED)
    write(root, "moves", 23)
    _, now = change("moves")
    report, _ = change("moves", model_change.rollback_in, earlier=before)
    assert int(report.version) == first + 3 and ask("moves") == 22
    assert states(job)["moves"] == ("ready", "the files of its subfolder are not served, since it was rolled back")
    with pytest.raises(LaunchError, match="this machine knows no earlier files of the model steady"):
        change("steady", model_change.rollback_in, earlier=now)


def test_models_appear_and_go(root, job, change, ask, db):
    write(root, "new", 5)
    change("new")
    assert ask("new", timeout=5) == 5
    shutil.rmtree(root / "leaves")
    with job.place() as place:
        changed = model_change.remove_in(place, "leaves")
    assert {one.name for one in changed.hosted} == {"moves", "steady"}
    assert "leaves" not in states(job)
    assert not db.exists(*JobKeys("leaves").streams, JobKeys("leaves").record, JobKeys("leaves").slots())
    write(root, "fails", "1 +")
    with pytest.raises(ModelError, match="invalid syntax"):
        change("fails")
    assert states(job)["fails"][0] == "failed"
    with pytest.raises(ModelError, match="model 'fails' is not served: .*invalid syntax"):
        ask("fails")


def test_a_request_in_the_moment_of_a_removal_is_answered(root, job, change, comes, ask, redis_server, db, monkeypatch):
    shutil.rmtree(root / comes)
    answer, told = retiring.answer, f"model {comes!r} was removed from the job store"

    def late(config, name):
        # No slot has the model any more. One request was delivered by a read that began before, another one was not.
        create_groups(db, name)
        with InputQueue(port=redis_server.port, name=name) as queue:
            for number in range(2):
                queue.enqueue(f"late{number}", x=np.float32(1))
        db.xreadgroup(GROUP, JobKeys("store").consumer(0, 0), {name: ">"}, count=1)
        return answer(config, name)

    monkeypatch.setattr(retiring, "answer", late)
    with job.place() as place:
        model_change.remove_in(place, comes)
    with OutputQueue(port=redis_server.port, name=comes) as results:
        for number in range(2):
            with pytest.raises(ModelError, match=told):
                results.query(f"late{number}", timeout=0)
    with pytest.raises(ModelError, match=told):
        ask(comes)
    assert not db.exists(*JobKeys(comes).streams, JobKeys(comes).record)
    write(root, comes, 6)
    change(comes)
    assert ask(comes) == 6


def test_a_slot_that_starts_again_in_a_removal_leaves_the_model(job, comes, db, monkeypatch):
    job.stop_slots()
    order = Order(REMOVE)
    with job.place() as place:
        place.store.write(JobKeys(comes).record, [KEPT_OUT, UNLOADED])
        place.store.write(orders.votes("store", order.id), [f"{DONE}:0", "yes", "decision", "make"])
        place.store.write(orders.key("store"), [comes, order.to_json()])
    apply, left = HostedModels.apply, []

    def seen(models, made):
        apply(models, made)
        left.extend([made.name] * (made.name not in models.queues))

    monkeypatch.setattr(HostedModels, "apply", seen)
    job.run_slots_again()
    wait_until(lambda: db.exists(JobKeys("store").control_outcome(order.id)), 30)
    assert left == [comes]
    with job.place() as place:
        hosted.remove(place.store, place.config, comes, "")


def test_an_unloaded_model_stays_so_in_a_slot_that_starts_again(root, job, change, comes, ask, db):
    write(root, "moves", 22)
    change("moves")
    change(comes, model_change.unload_in)
    with pytest.raises(ModelError, match="'comes' was unloaded; cluster-serving-cli update comes loads it again"):
        ask("comes")
    counted = db.hmget(JobKeys("moves").record, VERSION, CONTENT)
    # Redis loses all that the slot has written, and gets it again.
    db.delete(JobKeys("store").models, *(JobKeys(name).record for name in (comes, "moves")))
    wait_until(lambda: db.hexists(JobKeys("moves").record, OPTIONS), 30)
    assert all(counted) and db.hmget(JobKeys("moves").record, VERSION, CONTENT) == counted
    job.stop_slots()
    job.run_slots_again()
    expected = {comes: "unloaded", "moves": "ready", "steady": "ready"}
    wait_until(lambda: expected.items() <= {name: state for name, (state, _) in states(job).items()}.items(), 30)
    # As it was changed, and not as it was at the start.
    assert ask("moves") == 22 and ask("steady") == 2
    change("comes")
    assert ask("comes") == 5
    with pytest.raises(LaunchError, match="job store serves no model nothing"):
        change("nothing", model_change.unload_in)


def test_models_that_redis_loses_before_a_slot_starts_again_are_known_while_it_loads(job, ask, db, monkeypatch):
    job.stop_slots()
    db.delete(JobKeys("store").models, JobKeys("steady").slots(), "steady", *JobKeys("store").streams)
    load, seen = HostedModels.load, []

    def look(models, one):
        seen.append((states(job).get("steady"), db.hlen(JobKeys("steady").slots())))
        return load(models, one)

    monkeypatch.setattr(HostedModels, "load", look)
    job.run_slots_again()
    assert seen[0] == (("loading", ""), 1)
    assert ask("steady") == 2


def test_a_slot_that_starts_with_earlier_files_since_redis_lost_all_tells_which(root, job, change, ask, db):
    write(root, "moves", 40)
    change("moves")
    changed = db.hget(JobKeys("moves").record, CONTENT)
    job.stop_slots()
    db.delete(JobKeys("store").models, *(key for name in ("moves", "steady") for key in JobKeys(name).lasting()))
    job.run_slots_again()
    # By this the watch knows that the files of the subfolder are not served.
    wait_until(lambda: db.hexists(JobKeys("moves").record, CONTENT), 30)
    assert ask("moves") == 2 and db.hget(JobKeys("moves").record, CONTENT) != changed
    change("moves")
    assert ask("moves") == 40


def test_models_are_served_while_others_are_loaded_after_a_crash(redis_server, job, comes, ask, db, monkeypatch):
    factor = ask("moves")
    job.stop_slots()
    create_groups(db, "moves")
    with InputQueue(port=redis_server.port, name="moves") as queue:
        queue.enqueue("interrupted", x=np.float32(1))
    db.xreadgroup(GROUP, JobKeys("store").consumer(0, 0), {"moves": ">"})
    load, goes_on = HostedModels.load, threading.Event()

    def held(models, one):
        assert one.name != "steady" or goes_on.wait(60)
        return load(models, one)

    monkeypatch.setattr(HostedModels, "load", held)
    job.run_slots_again()
    # The last one of the alphabet is not loaded; requests for it wait, and so do those of the crash.
    with ThreadPoolExecutor(1) as pool:
        assert [ask("comes"), ask("moves")] == [5, factor]
        waiting = pool.submit(ask, "steady")
        assert states(job)["comes"][0] == "loading" and not waiting.done()
        assert db.xpending("moves", GROUP)["pending"] == 1
        goes_on.set()
        assert waiting.result() == 2
    with OutputQueue(port=redis_server.port, name="moves") as results:
        assert float(results.query("interrupted", timeout=30)) == factor
    wait_until(lambda: states(job)["steady"][0] == "ready", 30)


def test_a_model_whose_requests_wait_is_loaded_first_after_a_crash(redis_server, job, comes, monkeypatch):
    job.stop_slots()
    with InputQueue(port=redis_server.port, name="steady") as queue:
        queue.enqueue("waits", x=np.float32(1))
    load, loaded = HostedModels.load, []
    monkeypatch.setattr(HostedModels, "load", lambda models, one: loaded.append(one.name) or load(models, one))
    job.run_slots_again()
    with OutputQueue(port=redis_server.port, name="steady") as results:
        assert float(results.query("waits", timeout=30)) == 2
    assert loaded[0] == "steady"


@pytest.mark.parametrize("others", [(), (1,)], ids=["alone", "beside another record of its entry"])
def test_a_model_that_hangs_twice_is_put_aside(redis_server, job, change, comes, ask, others):
    with InputQueue(port=redis_server.port, name="comes") as queue:
        for _ in range(2):
            hanging, *answered = queue.predict_many([{"x": np.float32(x)} for x in (-1, *others)], timeout=60)
            assert isinstance(hanging.error, InferenceTimeout) and not any(one.error for one in answered)
    with pytest.raises(ModelError, match="'comes' is not served: it is put aside: .* within 0.3 s .*, twice"):
        ask("comes")
    assert ask("steady") == 2
    wait_until(lambda: states(job)["comes"][0] == "failed", 30)
    job.stop_slots()
    job.run_slots_again()
    assert "it is put aside" in states(job)["comes"][1]
    change("comes")
    assert ask("comes") == 5


def test_a_model_on_whose_requests_processes_die_is_put_aside(job, change, comes, ask, redis_server, db):
    job.stop_slots()
    create_groups(db, "comes")
    gone = Attempt(host=socket.gethostname(), process=os.getpid(), started=1, time=time.time())
    with InputQueue(port=redis_server.port, name="comes") as queue:
        for number in range(2):
            queue.enqueue(f"deadly{number}", x=np.float32(1))
    [[_, entries]] = db.xreadgroup(GROUP, JobKeys("store").consumer(0, 0), {"comes": ">"})
    for entry_id, _ in entries:
        db.hset(JobKeys("comes").attempts, f"normal:{entry_id.decode()}", gone.to_json())
    job.run_slots_again()
    assert "the process has died again and again on 2 of its requests" in states(job)["comes"][1]
    with pytest.raises(ModelError, match="it is put aside: the process has died"):
        ask("comes")
    assert ask("steady") == 2
    change("comes")
    assert ask("comes") == 5 and not db.hexists(JobKeys("comes").record, DEATHS)


def test_a_process_that_flink_has_ended_has_not_died_of_its_request(db, tmp_path):
    create_groups(db, "ended")
    record = tmp_path / "cluster-serving-worker-a"
    record.write_text(STOPPED)
    gone = Attempt(host=socket.gethostname(), process=os.getpid(), started=1, end=str(record))
    with InputQueue(port=db.get_connection_kwargs()["port"], name="ended") as queue:
        for number in range(2):
            queue.enqueue(f"ended{number}", x=np.float32(1))
    [[_, entries]] = db.xreadgroup(GROUP, "slot", {"ended": ">"})
    for entry_id, _ in entries:
        db.hset(JobKeys("ended").attempts, f"normal:{entry_id.decode()}", gone.to_json())
    assert deaths.cause(deaths.found(db, "ended")) == ""
    record.write_text("Fatal Python error: Aborted")
    assert "the process has died again and again on 2 of its requests" in deaths.cause(deaths.found(db, "ended"))
    db.delete(*JobKeys("ended").lasting())


def test_a_load_in_which_the_process_has_died_is_not_tried_again(job, change, ask, db):
    with job.place() as place:
        lost = Order(LOAD, model_change._text(place.options.hosted[0]))
        place.store.write(orders.votes("store", lost.id), [f"{BEGUN}:0", "yes"])
        place.store.write(orders.key("store"), ["steady", lost.to_json()])
        orders.wake(db, "store")
        assert db.xlen(orders.wakeups("store")) == 1 and db.ttl(orders.wakeups("store")) > 0
    # The outcome follows the end of the order.
    wait_until(lambda: db.exists(JobKeys("store").control_outcome(lost.id)), 30)
    outcome = db.hgetall(JobKeys("store").control_outcome(lost.id))
    assert not db.exists(orders.key("store"))
    assert b"the process has ended while it loaded the model" in outcome[b"error"]
    assert ask("steady") == 2


def test_a_load_during_a_load_follows_it(root, job, change, ask):
    write(root, "moves", 30, load=1)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(change, "moves")
        time.sleep(0.6)
        write(root, "moves", 31)
        second, _ = change("moves")
        assert first.result()[0].state == second.state == "ready"
    assert ask("moves") == 31 and ask("steady") == 2
