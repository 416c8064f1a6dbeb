"""No answer depends on who shares its batch, whatever the axes of the model."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from cluster_serving.job.models.batched.verdict import SAME
from cluster_serving.job.models.batched.watch import Watch
from cluster_serving.job.request import Request
from cluster_serving.protocol.entry import NATIVE, Entry
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.metrics import WATCHED
from cluster_serving.protocol.results import decode_outputs, to_fields
from tests.support.fixtures.predictor import predictor
from tests.support.payloads.axes_zoo import cases

CASES = cases()
RECORDS = 8


@functools.cache
def served(name, root):
    """A loaded model, some records, and what each gets alone from the engine's own library."""
    case, folder = CASES[name], root / "model"
    case.save(folder)
    rng = np.random.default_rng(1)
    records = [case.record(rng) for _ in range(RECORDS)]
    return predictor(folder, "", **case.options), records, [case.alone(folder, record) for record in records]


def answers(served, records):
    requests = [Request(Entry(b"1-0", str(i), b"", NATIVE), record) for i, record in enumerate(records)]
    return [decode_outputs(to_fields(answer.fields)) for answer in served.start(requests, alone=False).answers()]


@pytest.mark.parametrize("name", CASES)
def test_any_mix_of_requests_gets_the_answers_that_each_gets_alone(name, tmp_path):
    model, records, expected = served(name, tmp_path)
    counts = Counts()
    watch = Watch(counts)
    model.servable.model.watch_with(watch)
    rng = np.random.default_rng(2)
    for count in (1, 4, 2, 3, 1, 7, 4, 8, 5):
        chosen = rng.integers(0, RECORDS, count)
        for index, outputs in zip(chosen, answers(model, [records[index] for index in chosen]), strict=True):
            assert len(outputs) == len(expected[index])
            for own, array in zip(expected[index], outputs.values(), strict=True):
                assert array.shape == own.shape
                np.testing.assert_allclose(array, own, rtol=1e-4, atol=1e-5)
        watch.check(lambda judge: judge())
    reason = model.servable.one_by_one
    assert bool(reason) != CASES[name].shares, reason
    # The records that shared calls were computed again. One that is started by itself has shared none.
    shared = CASES[name].shares and not model.overlaps
    watched = {field: count for field, count in counts.take().items() if field.startswith(WATCHED.name)}
    assert watched == ({f"{WATCHED.name}:{SAME}": 7} if shared else {})
    print(model.report().model)
    model.close()
