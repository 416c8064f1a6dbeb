"""The layout of a job without keys for it: measured at the first start, kept, shown, and measured again by `tune`."""

import json

import numpy as np

from tests.support.fixtures.predictor import save_doubling

MEASURED = {"modelParallelism": None, "threadPerModel": None, "maxBatchSize": None}


def test_a_job_without_keys_has_a_measured_layout(cluster, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    save_doubling(model, 3)
    settings = {"jobName": "laid", "modelPath": model} | MEASURED
    try:
        first = cluster.start(**settings)
        assert first.returncode == 0, first.stdout + first.stderr
        assert "Measuring the layout" in first.stdout + first.stderr
        (layout,) = (line.split(maxsplit=1)[1] for line in first.stdout.splitlines() if line.startswith("  layout"))
        assert " core" in layout and "batches up to" in layout and "/s" in layout
        status = cluster.run("cluster-serving-cli", "status", "laid", "--json", cwd=cluster.folder / "laid")
        assert json.loads(status.stdout)["layout"] == layout
        requests, _ = cluster.queues("laid")
        with requests:
            # A measured batch is no limit for clients, who cannot know it.
            assert requests.predict({"x": np.ones((32, 3), "f4")}).tolist() == [[2.0] * 3] * 32
        tuned = cluster.run("cluster-serving-cli", "tune", "--seconds", "1", cwd=cluster.folder / "laid")
        assert tuned.returncode == 0, tuned.stderr
        assert "ms per batch" in tuned.stdout and "job laid runs during the measurement" in tuned.stderr
    finally:
        cluster.stop("laid")
    second = cluster.start(**settings)
    try:
        assert second.returncode == 0, second.stdout + second.stderr
        assert "Measuring" not in second.stdout + second.stderr
        # Figures of `tune`, in place of those of the first start.
        (layout,) = (line.split(maxsplit=1)[1] for line in second.stdout.splitlines() if line.startswith("  layout"))
        assert layout == tuned.stdout.splitlines()[-1]
    finally:
        cluster.stop("laid")
