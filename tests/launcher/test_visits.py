"""A reader of the commands seldom goes back to a file."""

import sys

from tests.support.programs.visits import ROOT


def test_a_start_and_an_update_are_read_with_few_returns(own_cluster, model):
    config = own_cluster.config(modelPath=model)

    def returns(command):
        ran = own_cluster.run(sys.executable, "-m", "tests.support.programs.visits", command, "-c", config, cwd=ROOT)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return int(ran.stdout.split()[-2])

    assert 0 < returns("start") <= 15
    assert 0 < returns("update") <= 25
