"""Calls of a model that hang, in threads of this process."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cluster_serving.job.batch import isolate
from cluster_serving.job.copies import NotComputed
from cluster_serving.job.models.base import Model
from cluster_serving.job.timeouts import watched as module
from cluster_serving.job.timeouts.watched import MAX_HUNG, Watched
from cluster_serving.protocol.errors import InferenceFailed, InferenceTimeout, ModelError
from cluster_serving.protocol.slots import TensorSpec
from tests.support.fixtures.waiting import wait_until


class Hanging(Model):
    """Doubles its input; hangs at a negative number until it is released, and raises at 99."""

    def __init__(self, released):
        self._released = released
        self.engine = "test"
        self.inputs = self.outputs = [TensorSpec("x", "float32", (None, 1))]
        self.closed = threading.Event()

    def close(self):
        self.closed.set()

    def _run(self, inputs):
        if (inputs[0] < 0).any():
            assert self._released.wait(60)
        if (inputs[0] == 99).any():
            raise TimeoutError("of the model's own")
        return [inputs[0] * 2]


@pytest.fixture
def copies():
    """All copies of the model that were loaded."""
    return []


@pytest.fixture
def released():
    return threading.Event()


@pytest.fixture
def watch(copies, released, monkeypatch):
    """Makes watched models."""
    monkeypatch.setattr(module, "_hung", [])
    made = []

    def load():
        copies.append(Hanging(released))
        return copies[-1]

    def watch(seconds):
        made.append(Watched(load, seconds))
        return made[-1]

    yield watch
    for model in made:
        model.close()
    released.set()
    # An abandoned call that returns in the end frees its copy.
    assert all(copy.closed.wait(10) for copy in copies)


@pytest.fixture
def watched(watch):
    return watch(0.5)


@pytest.fixture
def patient(watch, monkeypatch):
    """A model whose timeout never comes."""
    monkeypatch.setattr(module, "_SHORTEST_LIMIT", 0.1)
    return watch(3600)


def predict(watched, inputs, requests=1):
    return watched.call(lambda model: model.predict(inputs), requests)


def batch(*numbers):
    return [np.array(numbers, "f4")[:, np.newaxis]]


def test_a_call_that_hangs_is_an_error_and_the_next_one_has_a_fresh_copy(watched, copies):
    assert predict(watched, batch(1, 2))[0].tolist() == [[2], [4]]
    with pytest.raises(InferenceTimeout, match=r"within 0.5 s \(inferenceTimeout\)"):
        predict(watched, batch(-1))
    assert predict(watched, batch(3))[0].tolist() == [[6]]
    assert len(copies) == 2
    assert not watched.exhausted


def test_a_batch_that_takes_unusually_long_is_given_up_early_and_its_requests_are_tried_alone(patient, copies):
    assert predict(patient, batch(1))[0].tolist() == [[2]]
    with pytest.raises(InferenceTimeout):
        predict(patient, batch(1, -1), 2)
    assert predict(patient, batch(3))[0].tolist() == [[6]]
    assert len(copies) == 2


def test_while_a_request_takes_unusually_long_another_copy_is_loaded(patient, copies, released):
    predict(patient, batch(1))
    slow = ThreadPoolExecutor(1).submit(predict, patient, batch(-1))
    wait_until(lambda: len(copies) == 2)
    assert not slow.done()
    released.set()
    # It was no hang, so the other copy is not needed.
    assert slow.result(30)[0].tolist() == [[-2]]
    assert copies[1].closed.wait(30)
    assert predict(patient, batch(3))[0].tolist() == [[6]]
    assert len(copies) == 2


def test_only_the_records_that_hang_are_given_up(watched):
    results = isolate(lambda records: list(predict(watched, batch(*records))[0][:, 0]), [1, 2, -1, 4])
    assert [str(type(result).__name__) for result in results] == ["float32", "float32", "InferenceTimeout", "float32"]


def test_after_some_calls_that_hang_nothing_more_is_computed(watched):
    results = isolate(lambda records: predict(watched, batch(*records))[0].tolist(), [-1.0] * (MAX_HUNG + 2))
    # The whole batch hung first.
    assert [type(result) for result in results] == [InferenceTimeout] * (MAX_HUNG - 1) + [NotComputed] * 3
    assert watched.exhausted
    with pytest.raises(NotComputed):
        predict(watched, batch(1))


def test_an_error_of_the_model_is_no_timeout(watched, copies):
    with pytest.raises(InferenceFailed, match="of the model's own") as raised:
        predict(watched, batch(99))
    assert not isinstance(raised.value, InferenceTimeout)
    assert len(copies) == 1


def test_a_model_that_cannot_be_loaded_again_ends_the_process(watched, monkeypatch):
    with pytest.raises(InferenceTimeout):
        predict(watched, batch(-1))

    def fail():
        raise ModelError("gone")

    monkeypatch.setattr(watched, "_load", fail)
    with pytest.raises(NotComputed):
        predict(watched, batch(1))
    assert watched.exhausted


def test_an_error_of_the_first_load_is_raised():
    def fail():
        raise ModelError("no model")

    with pytest.raises(ModelError, match="no model"):
        Watched(fail, 1)


def test_a_model_that_cannot_be_loaded_leaves_no_thread():
    def load():
        raise ModelError("gone")

    before = threading.active_count()
    for _ in range(5):
        with pytest.raises(ModelError, match="gone"):
            Watched(load, 0.5)
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    # Threads of other tests may have ended meanwhile.
    assert threading.active_count() <= before
