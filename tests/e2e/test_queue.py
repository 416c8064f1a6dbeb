"""What happens to requests while they wait, on a model that takes as long as it is told."""

from tests.support.fixtures import sleeper
from tests.support.fixtures.sleeper import seconds
from tests.support.worlds import keda


def test_priorities_are_served_in_order_and_none_starves_while_keda_sees_them_wait(started, cluster, tmp_path):
    requests, results = started(jobName="priorities", modelPath=sleeper.write_to(tmp_path), maxBatchSize=1)
    first = int(requests.predict({"x": seconds(0)}, timeout=60)[0])
    # Long enough for all that is sent, and for the command.
    requests.enqueue("slow", x=seconds(6))
    sent = {"low": 40, "normal": 40, "high": 80}
    for priority, count in sent.items():
        for number in range(count):
            requests.enqueue(f"{priority}-{number}", x=seconds(0), priority=priority)
    scaled = keda.of_job(keda.recipe(), "priorities")
    assert (keda.length(scaled, cluster.redis_port), keda.pods(scaled, cluster.redis_port)) == (161, 2)
    status = cluster.run("cluster-serving-cli", "status", "priorities", cwd=cluster.folder / "priorities").stdout
    assert "161 requests (80 high, 41 normal, 40 low)" in " ".join(status.split())
    turn = {
        priority: [int(results.query(f"{priority}-{number}", timeout=60)[0]) - first for number in range(count)]
        for priority, count in sent.items()
    }
    assert sorted(number for turns in turn.values() for number in turns) == list(range(2, 162))
    assert all(turns == sorted(turns) for turns in turn.values()), "in order within a priority"
    assert max(turn["high"]) < max(turn["normal"]) < max(turn["low"])
    # While high requests wait, they are three of four, and the others go on nevertheless.
    assert max(turn["high"]) <= 1.6 * sent["high"]
    assert sum(number < max(turn["high"]) for number in turn["low"]) >= 3
    results.query("slow", timeout=60)
    assert (keda.length(scaled, cluster.redis_port), keda.pods(scaled, cluster.redis_port)) == (0, 1)
