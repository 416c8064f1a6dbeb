from cluster_serving.bench.guard import problems


def test_the_guard_fails_on_lost_requests_and_on_nothing_measured_only():
    fine = {"ours": [{"rate": 1.0}], "others": {"bare": {"runs": [{"rate": 99.0}]}}}
    assert problems(fine) == []
    assert "lost" in problems(fine | {"ours": [{"rate": 1.0, "lost": 2}]})[0]
    assert "nothing" in problems(fine | {"others": {"bare": {"failed": "why"}}})[0]
