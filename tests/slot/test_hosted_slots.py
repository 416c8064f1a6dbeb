"""Several slots that serve the same models: they answer together, change together, and stand in for each other."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from cluster_serving.client import InferenceTimeout, InputQueue, ModelError, OutputQueue
from cluster_serving.job.hosting import leak
from cluster_serving.launcher.jobs import hosted
from cluster_serving.launcher.rollout import model_change
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.slots import read_reports
from tests.support.fixtures.handled import write
from tests.support.fixtures.running_slot import RunningJob
from tests.support.fixtures.waiting import wait_until

JOB, SLOTS = "team", 3
TIMES = """
    import os
    import time

    def hold(busy, go):
        # On a busy machine other slots may take this one for dead, and compute its request too: one slot alone is held.
        try:
            os.mkdir(busy)
        except FileExistsError:
            return
        while not os.path.exists(go):
            time.sleep(0.01)
        os.rmdir(busy)

    class Handler:
        inputs = {{"x": "float32"}}
        outputs = {{"y": "float32"}}

        def __init__(self):
            {start}

        def predict(self, batch):
            if batch["x"].min() < 0:
                time.sleep(3600)
            {before}
            return {{"y": batch["x"] * {factor}}}
    """


def put(root, name, factor, start="pass", before="pass", config="inferenceTimeout: 0.3"):
    """Write, or change, a model that multiplies, and hangs on a negative number."""
    (root / name).mkdir(exist_ok=True)
    write(root / name, TIMES.format(factor=factor, start=start, before=before))
    (root / name / "config.yaml").write_text(config)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    for name, factor in {"twice": 2, "thrice": 3}.items():
        put(folder, name, factor)
    put(folder, "once", 5, start=f"os.mkdir({str(folder / 'loaded')!r})")
    waits = f"batch['x'].max() == 99 and hold({str(folder / 'busy')!r}, {str(folder / 'go')!r})"
    put(folder, "waits", 7, before=waits, config="")
    (folder / "broken").mkdir()
    (folder / "broken" / "model.onnx").write_bytes(b"no model")
    return folder


@pytest.fixture(scope="module")
def job(redis_server, root, tmp_path_factory):
    settings = {"jobName": JOB, "modelPath": root, "maxBatchSize": 4, "modelParallelism": SLOTS, "startTimeout": 60}
    job = RunningJob(redis_server, tmp_path_factory.mktemp("config"), **settings)
    job.start()
    yield job
    job.stop()


@pytest.fixture
def change(job):
    """Changes a model as a command does."""

    def make(name, how=model_change.load_in):
        with job.place() as place:
            return how(place, name)

    return make


@pytest.fixture
def ask(redis_server):
    def predict(name, *values, timeout=60):
        with InputQueue(port=redis_server.port, name=name) as queue:
            return [float(y) for y in queue.predict_many([{"x": np.float32(x)} for x in values], timeout=timeout)]

    return predict


@pytest.fixture
def held(root, ask):
    """Holds one slot in a batch of the model `waits`, for the time of a block."""

    @contextmanager
    def hold():
        with ThreadPoolExecutor(1) as pool:
            answers = pool.submit(ask, "waits", 99)
            try:
                wait_until((root / "busy").exists)
                yield
                assert (root / "busy").exists()
            finally:
                (root / "go").touch()
            assert answers.result() == [693]
            wait_until(lambda: not (root / "busy").exists())
        (root / "go").unlink()

    return hold


def states(job):
    with job.place() as place:
        return {one.name: (one.state, one.error) for one in hosted.read(place.store)}


def test_all_slots_answer_and_change_together(root, job, change, ask, db):
    answers, ended = [], threading.Event()

    def send():
        while not ended.is_set():
            answers.extend(ask("twice", *range(40)))

    clients = [threading.Thread(target=send) for _ in range(3)]
    for client in clients:
        client.start()
    put(root, "twice", 20)
    report, _ = change("twice")
    after = {y for _ in range(5) for y in ask("twice", *[1] * 40)}
    ended.set()
    for client in clients:
        client.join()
    assert report.version == "2"
    # The change is told of when the last slot has made it.
    assert after == {20}
    assert set(answers) <= {float(x * factor) for x in range(40) for factor in (2, 20)}
    consumers = {each["name"] for each in db.xinfo_consumers("twice", GROUP)}
    assert consumers == {f"{JOB}-0-{index}".encode() for index in range(SLOTS)}
    assert len(db.hgetall(JobKeys("twice").slots())) == SLOTS


def test_a_model_that_no_slot_can_load_is_answered_with_the_reason(job, ask):
    assert "is not an ONNX model" in states(job)["broken"][1]
    for _ in range(2 * SLOTS):
        with pytest.raises(ModelError, match="model 'broken' is not served: .* is not an ONNX model"):
            ask("broken", 1)


def test_a_model_that_one_slot_can_load_is_served_by_that_slot(job, ask):
    assert ask("once", *range(30)) == [5.0 * x for x in range(30)]
    state, error = states(job)["once"]
    assert state == "ready" and error.count("FileExistsError") == SLOTS - 1
    assert "does not serve it: the method load of the handler" in error


def test_a_new_model_is_told_of_when_the_last_slot_serves_it(root, job, change, ask, held, db):
    put(root, "later", 4)
    with ThreadPoolExecutor(1) as pool:
        with held():
            changing = pool.submit(change, "later")
            wait_until(lambda: len(db.hgetall(JobKeys("later").slots())) == SLOTS - 1)
            assert "later" not in states(job) and not changing.done()
        assert changing.result()[0].state == "ready"
    assert set(ask("later", *[1] * 20)) == {4}
    shutil.rmtree(root / "later")
    change("later", model_change.remove_in)


def test_a_change_that_one_slot_cannot_make_is_made_in_none(root, job, change, ask, tmp_path):
    put(root, "thrice", 30, start=f"os.mkdir({str(tmp_path / 'loaded')!r})")
    with pytest.raises(ModelError, match=r"slot \d cannot load it: .*FileExistsError"):
        change("thrice")
    assert set(ask("thrice", *[1] * 60)) == {3}
    assert states(job)["thrice"][0] == "ready" and "the new files are not served" in states(job)["thrice"][1]


def test_a_slot_in_a_long_batch_keeps_no_requests_of_other_models(ask, held):
    with held():
        for _ in range(10):
            assert ask("thrice", *range(20), timeout=20) == [3.0 * x for x in range(20)]


def test_models_come_and_go_in_all_slots(root, job, change, ask, db):
    put(root, "comes", 4)
    change("comes")
    assert set(ask("comes", *[1] * 40)) == {4}
    change("comes", model_change.unload_in)
    for _ in range(SLOTS):
        with pytest.raises(ModelError, match="'comes' was unloaded"):
            ask("comes", 1)
    change("comes")
    shutil.rmtree(root / "comes")
    change("comes", model_change.remove_in)
    assert "comes" not in states(job) and not db.exists(*JobKeys("comes").streams, JobKeys("comes").slots())


def test_hanging_requests_count_over_all_slots(root, change, ask, db):
    put(root, "hangs", 2)
    change("hangs")
    for _ in range(2):
        with pytest.raises(InferenceTimeout):
            ask("hangs", -1)
    # One slot tells the others.
    reports = JobKeys("hangs").slots()
    wait_until(lambda: {each.state for each in read_reports(db.hgetall(reports))} == {"failed"}, 30)

    def is_refused():
        with pytest.raises(ModelError, match="'hangs' is not served: it is put aside"):
            ask("hangs", 1)
        return True

    assert all(is_refused() for _ in range(2 * SLOTS))
    assert ask("thrice", 1) == [3]


def test_a_model_that_leaks_is_put_aside_and_one_beside_it_is_not(root, change, ask, monkeypatch):
    monkeypatch.setattr(leak, "limit", lambda share: 48 << 20)
    put(root, "leaks", 2, start="self.kept = []", before="self.kept.append(b'x' * (2 << 20))")
    put(root, "innocent", 4)
    for name in ("leaks", "innocent"):
        change(name)

    def ask_until_refused():
        with pytest.raises(ModelError, match="'leaks' is not served: it is put aside: its calls have left .* MB"):
            for _ in range(400):
                ask("leaks", *[1] * 6)

    with ThreadPoolExecutor(4) as pool:
        leaking = pool.submit(ask_until_refused)
        for one in [pool.submit(ask, "innocent", *[1] * 200) for _ in range(3)]:
            assert one.result() == [4] * 200
        leaking.result()
    assert ask("innocent", 1) == [4] and ask("thrice", 1) == [3]


def test_requests_of_slots_that_have_died_are_taken_over(job, ask, db, redis_server):
    """Those of a slot that the job still has, and those of slots that it had before."""
    job.stop_slots()
    with InputQueue(port=redis_server.port, name="thrice") as queue:
        for index in (1, SLOTS + 2):
            queue.enqueue(f"left{index}", x=np.float32(index))
            db.xreadgroup(GROUP, JobKeys(JOB).consumer(0, index), {"thrice": ">"})
        job.run_slots_again()
        with OutputQueue(port=redis_server.port, name="thrice") as results:
            assert [float(results.query(f"left{index}", timeout=30)) for index in (1, SLOTS + 2)] == [3, 15]


def test_slots_that_start_again_make_streams_that_redis_has_lost(job, ask, db):
    job.stop_slots()
    db.delete(*JobKeys(JOB).streams, *JobKeys("thrice").streams)
    job.run_slots_again()
    assert ask("thrice", 1) == [3]


def test_redis_gets_again_what_it_has_lost(job, ask, db):
    names = list(states(job))
    db.delete(JobKeys(JOB).models, *(JobKeys(name).record for name in names), *(JobKeys(n).slots() for n in names))
    wait_until(lambda: len(db.hgetall(JobKeys("thrice").slots())) == SLOTS, 30)
    assert ask("thrice", 1) == [3] and states(job)["broken"][0] == "failed"
