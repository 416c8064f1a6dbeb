"""Threads of the models of a folder."""

import pytest

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.job.hosting.threads import fitted
from cluster_serving.job.options import JobOptions, ModelOptions


@pytest.mark.parametrize(("file", "threads"), [("model.json", 1), ("model.txt", 1), ("model.cbm", 1), ("m.onnx", 4)])
def test_trees_have_one_thread_and_other_models_those_of_the_job(tmp_path, file, threads):
    (tmp_path / file).touch()
    options = JobOptions("start", ModelOptions(str(tmp_path), thread_per_model=4), RedisOptions("redis://h"))
    assert fitted(options).model.thread_per_model == threads
