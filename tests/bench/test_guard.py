from cluster_serving.bench.guard import falls, problems


def test_the_guard_fails_on_lost_requests_and_on_nothing_measured_only():
    fine = {"ours": [{"rate": 1.0}], "others": {"bare": {"runs": [{"rate": 99.0}]}}}
    assert problems(fine) == []
    assert "lost" in problems(fine | {"ours": [{"rate": 1.0, "lost": 2}]})[0]
    assert "nothing" in problems(fine | {"others": {"bare": {"failed": "why"}}})[0]


def run(low, high, cpu="A", cores=2):
    ratios = {"bare loop": {"median": (low + high) / 2, "low": low, "high": high}, "plain FastAPI": None}
    return {"ratios": ratios, "machine": {"cpu": cpu, "cores": cores}}


def test_a_ratio_that_falls_by_more_than_its_noise_fails_the_guard():
    history = [run(0.9, 0.95), run(0.85, 0.99)]
    assert falls(run(0.8, 0.86), history) == []
    (line,) = falls(run(0.7, 0.84), history)
    assert "ours to bare loop: 0.770, at best 0.840; it was at least 0.850 in the latest 2 runs" in line


def test_runs_on_other_machines_and_old_runs_do_not_count():
    assert falls(run(0.1, 0.2), [run(0.9, 1.0, cpu="B"), run(0.9, 1.0, cores=64)]) == []
    history = [run(0.1, 0.2), *[run(0.9, 1.0)] * 5]
    assert falls(run(0.3, 0.4), history)
    assert falls(run(0.3, 0.4), history[:-1]) == []
