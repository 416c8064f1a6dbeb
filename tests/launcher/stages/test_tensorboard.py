"""The key of TensorBoard."""

from cluster_serving.connectors.stages.tensorboard import Keys
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.shipping.bundle import _needs
from tests.support.fixtures.handled import NO_NEGATIVES, write


def test_the_folder_for_tensorboard_is_beside_the_file_or_where_it_says(read, tmp_path):
    found = [job_options(read(f"modelPath: m\ntensorboard: {value}"), "s").redis for value in ("true", "false", "/t")]
    assert [dict(each.stages)["tensorboard"] for each in found] == [str(tmp_path / "tensorboard"), "", "/t"]


def test_without_the_key_nothing_is_written(read):
    assert job_options(read("modelPath: m"), "s").redis.of_stage(Keys) == Keys()


def test_a_job_brings_the_package_that_writes_the_files(read, tmp_path):
    write(tmp_path, NO_NEGATIVES)
    found, _ = _needs(job_options(read("modelPath: .\ntensorboard: /folder"), "s"))
    assert found == {"job", "tensorboard"}
