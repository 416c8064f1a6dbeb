"""A model whose records depend on each other in a way that no proof at load sees, on a running job."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import redis

from cluster_serving.protocol.events import Event
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import read_reports
from tests.e2e.test_metrics import Samples
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads.mixing import REASON, alone, records, save

JOB = "watched"
CLIENTS = 8


def test_a_difference_that_a_slot_finds_ends_sharing_in_all_slots_and_after_a_restart(
    started, cluster, front, tmp_path
):
    save(tmp_path)
    settings = {
        "jobName": JOB,
        "modelPath": tmp_path,
        "inputShapes": [[4]],
        "modelParallelism": 2,
        "maxBatchSize": 16,
    }
    queue, _ = started(**settings)
    keys = JobKeys(JOB)

    def are_right(client, factor=2.0):
        x = records(64, client)
        answers = list(queue.predict_many([{"x": row} for row in x], timeout=60))
        return np.allclose([*answers], alone(x, factor), rtol=1e-4, atol=1e-4)

    with (
        redis.Redis(port=cluster.redis_port) as db,
        ThreadPoolExecutor(CLIENTS) as clients,
    ):

        def reasons():
            return [report.one_by_one for report in read_reports(db.hgetall(keys.slots()))]

        def all_are_right(factor=2.0):
            return all(clients.map(lambda client: are_right(client, factor), range(CLIENTS)))

        assert reasons() == ["", ""]
        wait_until(lambda: all_are_right() and reasons() == [REASON, REASON], 60)

        marks = {name.decode(): reason.decode() for name, reason in db.hgetall(keys.one_by_one).items()}
        assert set(marks.values()) == {REASON}
        events = [Event.of(*each) for each in db.xrange(keys.events)]
        assert any(event.what.endswith(f"computes one record a call from now on: {REASON}") for event in events)
        status = cluster.run("cluster-serving-cli", "status", cwd=cluster.folder / JOB)
        assert f"one record a call ({REASON})" in status.stdout
        metrics = Samples(front.get("/metrics", headers={"accept": "text/plain"}).text, JOB)
        assert metrics.sum("watched_records_total", verdict="differs") >= 1
        assert metrics.sum("watch_seconds_total") > 0
        wait_until(
            lambda: Samples(front.get("/metrics", headers={"accept": "text/plain"}).text, JOB).sum("sharing_ended") == 2
        )

        # The digest of the model comes with a heartbeat. It says the same after any start.
        wait_until(lambda: db.hlen(keys.one_by_one) == 2)
        assert cluster.stop(JOB).returncode == 0
        restarted = cluster.start(**settings)
        assert restarted.returncode == 0, restarted.stderr
        assert f"one record a call ({REASON})" in restarted.stdout
        assert all_are_right()
        assert reasons() == [REASON, REASON]

        # Another model has no mark.
        save(tmp_path, factor=3.0)
        changed = cluster.restart(JOB)
        assert changed.returncode == 0, changed.stderr
        assert reasons() == ["", ""]
        wait_until(lambda: all_are_right(3.0) and reasons() == [REASON, REASON], 60)
