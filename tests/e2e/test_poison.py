"""A request that kills the process which computes it is given up alone."""

import os
import sys

import cloudpickle
import numpy as np
import pytest
import torch

from cluster_serving.client import PoisonRequest
from cluster_serving.client.protocol import dead_letters_key
from tests.waiting import wait_until


class Killer(torch.nn.Module):
    """Doubles its input, and ends its process, as a crash in native code does, at a negative number."""

    def forward(self, x):
        if (x < 0).any():
            os._exit(1)
        return x * 2


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_request_that_kills_its_process_becomes_a_dead_letter(started, cluster, cluster_db, tmp_path, mode):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    torch.save(Killer(), tmp_path / "model.pt", pickle_module=cloudpickle)
    name = f"poison-{mode}"
    requests, results = started(
        jobName=name, modelPath=tmp_path, executionMode=mode, allowPickle=True, maxDeliveries=2, inputShapes=[[3]]
    )
    for number in range(60):
        requests.enqueue(f"r{number}", x=np.full(3, -1.0 if number == 30 else number, "f4"))
    for number in range(60):
        if number == 30:
            with pytest.raises(PoisonRequest, match="given up after 2 attempts"):
                results.query("r30", timeout=120)
        else:
            assert results.query(f"r{number}", timeout=120).tolist() == [2 * number] * 3
    ((_, letter),) = cluster_db.xrange(dead_letters_key(name))
    assert letter[b"uri"] == b"r30"
    assert cluster_db.xlen(name) == 0
    wait_until(lambda: cluster.state_of(name) == "RUNNING")
