"""The target in examples/, as a distribution, on the Flink of the tests."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.fixtures.commands import run
from tests.support.payloads import model_zoo
from tests.support.worlds.distributions import install

EXAMPLE = Path(__file__).parents[2] / "examples" / "targets" / "directory"
MODULE = EXAMPLE / "cluster_serving_directory.py"


@pytest.fixture
def site(tmp_path):
    """A folder for PYTHONPATH that has the example."""
    group = "cluster_serving.targets"
    section = (EXAMPLE / "pyproject.toml").read_text().partition(f'"{group}"]\n')[2]
    entry = section.partition("\n")[0].replace('"', "")
    install(tmp_path / "site", "cluster-serving-directory", MODULE, entry, group)
    assert len(MODULE.read_text().splitlines()) < 100
    return str(tmp_path / "site")


def test_a_job_runs_on_the_cluster_of_a_name(cluster, started, site, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    model_zoo.save_openvino_digits(model)
    # The Flink of the tests may not run yet.
    started(jobName="here", modelPath=model)
    clusters = tmp_path / "clusters.yaml"
    settings = {
        "jobName": "named",
        "modelPath": model,
        # That of the name counts.
        "flinkRestUrl": "127.0.0.1:1",
        "flink": {"target": "directory", "directory": str(clusters), "cluster": "blue", "ship": "nothing"},
    }
    with cluster.variables(PYTHONPATH=site):
        clusters.write_text("green: 127.0.0.1:1\n")
        refused = cluster.start(**settings)
        assert refused.returncode != 0
        assert f"flink.cluster is 'blue'; {clusters} has green" in " ".join(refused.stderr.split())
        clusters.write_text(f"blue: {cluster.rest.removeprefix('http://')}\n")
        try:
            done = cluster.start(**settings)
            assert done.returncode == 0, done.stdout + done.stderr
            queue, _ = cluster.queues("named")
            assert queue.predict({"x": np.zeros(64, "f4")}).shape == (10,)
            assert len(cluster.running_jobs("named")) == 1
        finally:
            stopped = cluster.stop("named")
    assert stopped.returncode == 0, stopped.stderr


def test_its_keys_are_checked_and_written_as_all_others(site, tmp_path):
    def ran(*words):
        environment = {"PYTHONPATH": site, "CLUSTER_SERVING_HOME": str(tmp_path / "state")}
        return run(*words, cwd=tmp_path, environment=environment)

    made = ran("cluster-serving-init")
    assert made.returncode == 0, made.stderr
    text = (tmp_path / "config.yaml").read_text()
    assert "kubernetes-session or directory, or empty." in " ".join(text.replace("#", "").split())
    assert "  # directory: /etc/flink-clusters.yaml" in text and '  # cluster: ""' in text
    (tmp_path / "config.yaml").write_text("modelPath: m\nflink:\n  directry: x\n")
    refused = ran("cluster-serving-start")
    assert refused.returncode == 2
    assert "line 3: flink.directry is not a key" in refused.stderr
    assert "did you mean flink.directory?" in refused.stderr
