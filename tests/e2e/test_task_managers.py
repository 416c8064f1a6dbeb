"""The slots of a job over several TaskManagers, on a cluster of its own."""

import httpx
import numpy as np

from tests.support.predictor import save_doubling


def test_the_slots_of_a_job_are_spread_as_the_configuration_says(own_cluster, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    save_doubling(model, 3)
    done = own_cluster.start(jobName="spread", modelPath=model, modelParallelism=4, slotsPerTaskManager=2)
    assert done.returncode == 0, done.stdout + done.stderr
    managers = httpx.get(f"{own_cluster.rest}/taskmanagers").json()["taskmanagers"]
    assert [(manager["slotsNumber"], manager["freeSlots"]) for manager in managers] == [(2, 0), (2, 0)]
    requests, results = own_cluster.queues("spread")
    with requests, results:
        for number in range(40):
            requests.enqueue(f"r{number}", x=np.full(3, number, "f4"))
        for number in range(40):
            assert results.query(f"r{number}", timeout=60).tolist() == [2 * number] * 3
