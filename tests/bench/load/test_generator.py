from cluster_serving.bench.load.generator import Load


def test_a_load_is_divided_without_loss():
    parts = Load("closed", concurrency=5, requests=11).divide(3)
    assert [part.concurrency for part in parts] == [2, 2, 1]
    assert sum(part.requests for part in parts) == 11
    assert len({part.seed for part in parts}) == 3


def test_no_process_is_without_callers():
    assert len(Load("closed", concurrency=2).divide(8)) == 2


def test_an_open_load_divides_its_rate():
    assert [part.rate for part in Load("open", rate=90.0).divide(3)] == [30.0] * 3
