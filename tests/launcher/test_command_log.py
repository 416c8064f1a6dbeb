"""The file `cluster-serving.log` beside config.yaml."""

import os

import pytest

from cluster_serving.launcher.command_log import NAME


def test_the_log_beside_the_configuration_has_steps_warnings_and_errors(own_cluster):
    folder = own_cluster.configure(jobName="logged", modelPath="missing", performance_mode="x")
    failed = own_cluster.run("cluster-serving-start", cwd=folder)
    assert failed.returncode == 1
    log = (folder / NAME).read_text()
    assert "cluster-serving-start" in log.splitlines()[0]
    assert "WARNING" in log and "performance_mode has no effect" in log
    assert "ERROR" in log and "the model folder" in log

    own_cluster.run("cluster-serving-cli", "list", cwd=folder)
    assert (folder / NAME).read_text() == log


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_not_writable_has_no_log_and_no_error(own_cluster):
    folder = own_cluster.configure(jobName="logged", modelPath="missing")
    folder.chmod(0o500)
    failed = own_cluster.run("cluster-serving-start", cwd=folder)
    assert "Logging error" not in failed.stderr
    assert not (folder / NAME).exists()


def test_a_home_of_redis_or_flink_that_does_not_fit_is_refused_with_the_reason(own_cluster):
    folder = own_cluster.configure(jobName="homes", modelPath="model")
    (folder / "model").mkdir()
    for name in ("digits.xml", "digits.bin"):
        (folder / "model" / name).touch()
    for variable, reason in {
        "REDIS_HOME": "there is no valkey-server or redis-server in it",
        "FLINK_HOME": "its lib/ has no flink-dist-*.jar, but Flink 2.3 is needed",
    }.items():
        with own_cluster.variables(**{variable: str(folder)}):
            failed = own_cluster.run("cluster-serving-start", cwd=folder)
        assert failed.returncode == 1
        assert f"{variable} is {folder}" in failed.stderr and reason in failed.stderr
