"""Time for trials on a busy machine."""

from __future__ import annotations

import time

from cluster_serving.job.models.batched.budget import Budget


def test_time_that_others_compute_is_not_lost(monkeypatch):
    clock, computed = [0.0], [5.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "process_time", lambda: computed[0])
    budget = Budget(1)
    clock[0], computed[0] = 4, 5.9
    assert budget.has_time()
    computed[0] = 6
    assert not budget.has_time()
    clock[0], computed[0] = 0.9, 9
    assert budget.has_time()
    clock[0], computed[0] = 10, 5
    assert not budget.has_time()
