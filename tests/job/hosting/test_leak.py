"""What the calls of a model leave in the memory of the process."""

import mmap

import pytest

from cluster_serving.job.hosting import leak
from cluster_serving.protocol.host.memory import resident

LIMIT = 1600


@pytest.fixture
def process(monkeypatch):
    """The memory of a process, and a function that lets calls of a model leave something in it."""
    monkeypatch.setattr(leak, "limit", lambda share: LIMIT)
    memory = [5000]
    model = leak.Leak(lambda: memory[0])

    def call(left, times=1):
        for _ in range(times):
            with model.measured():
                memory[0] += left
        return model

    return call


def test_a_model_that_leaves_more_and_more_is_suspected_and_then_named(process):
    assert not process(100, 7).is_suspected
    assert process(100).is_suspected and not process(0).problem
    assert not process(100, 7).problem
    assert "its calls have left" in process(100).problem


def test_a_model_that_gives_back_what_it_takes_is_not(process):
    for _ in range(100):
        assert not process(700).is_suspected
        assert not process(-700).is_suspected
    # What calls of others give back is not saved up.
    process(-5000)
    assert process(800).is_suspected


def test_a_model_beside_one_that_leaks_is_cleared_when_it_is_alone(process):
    assert process(800).is_suspected
    assert process(0, 99).is_suspected
    assert not process(0).is_suspected
    assert not process(700).is_suspected
    assert process(100).is_suspected


def test_what_a_load_beside_a_call_takes_is_not_the_models(process):
    with leak.LOADS.noted():
        assert not process(1600).is_suspected
    # A load that began and ended meanwhile, as those of other threads do.
    loads = leak.Loads()
    before = loads.changes
    with loads.noted():
        assert loads.since(loads.changes)
    assert loads.since(before) and not loads.since(loads.changes)
    assert not process(700).is_suspected


def test_the_memory_of_the_process_is_told():
    before = resident()
    # Not from the heap, which may have room that earlier tests have left.
    with mmap.mmap(-1, 64 << 20) as kept:
        kept.write(bytes(64 << 20))
        assert 60 << 20 < resident() - before < 200 << 20
