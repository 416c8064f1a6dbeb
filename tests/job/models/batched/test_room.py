"""Batches of networks that take much memory are computed in several calls."""

import logging

import numpy as np

from cluster_serving.job.models.batched import growth, room
from cluster_serving.job.models.batched.model import BatchedModel
from tests.job.models.batched.test_model import Raw, records

MEGABYTES = 1 << 20


def large(x):
    """4 MB of memory for each record of 100 numbers."""
    taken = np.ones((len(x), MEGABYTES // 200 * x.shape[1]), np.float64)
    return x + taken[:, :1].astype(x.dtype)


def test_a_batch_that_takes_too_much_memory_is_computed_in_several_calls(monkeypatch, caplog):
    monkeypatch.setattr(growth, "available_memory", lambda: 8 * 33 * MEGABYTES)
    raw = Raw(large, (None, 100))
    model = BatchedModel(raw)
    with caplog.at_level(logging.WARNING):
        model.prove()
    assert model.one_by_one == ""
    (message,) = caplog.messages
    assert "of 100 numbers, as each takes about" in message
    raw.calls.clear()
    x = records(32, 100)
    np.testing.assert_array_equal(model.predict([x])[0], x + 1)
    assert sum(raw.calls) == 32
    assert max(raw.calls) in (6, 7, 8)
    assert len(caplog.messages) == 1


def test_sizes_that_clients_choose_are_measured_when_they_come(monkeypatch):
    monkeypatch.setattr(growth, "available_memory", lambda: 8 * 33 * MEGABYTES)
    raw = Raw(large, (None, None))
    model = BatchedModel(raw)
    model.prove()
    for size, most in ((100, 32), (400, 4)):
        x = records(32, size)
        model.predict([x[:1]])
        raw.calls.clear()
        np.testing.assert_array_equal(model.predict([x])[0], x + 1)
        assert sum(raw.calls) == 32
        assert max(raw.calls) <= most
    x = records(32, 4)
    raw.calls.clear()
    model.predict([x])
    assert raw.calls == [32]


def test_memory_of_another_device_is_not_measured():
    own = room.Room("Fake", is_measured=False)
    assert own.rows([records(32, 4)]) == 32
