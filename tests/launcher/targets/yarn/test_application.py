"""What YARN and Flink are told of a job, and what they tell."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster_serving.launcher.config import repository
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.model import with_all_keys
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.shipping import bundle
from cluster_serving.launcher.shipping.bundle import Bundle
from cluster_serving.launcher.targets.applications import sizes
from cluster_serving.launcher.targets.yarn import application as yarn

MIB = 1 << 20


@pytest.fixture
def config(tmp_path):
    (tmp_path / "model.bin").write_bytes(bytes(10 * MIB))
    return with_all_keys()(modelPath=str(tmp_path), jobName="digits", **{"flink.target": "yarn-application"})


def off_heap(config):
    return int(sizes(config, job_options(config, "start"))["taskmanager.memory.task.off-heap.size"].removesuffix("m"))


def test_memory_outside_of_the_jvm_holds_one_engine_and_a_copy_of_the_model_per_slot(config):
    one = off_heap(config)
    assert off_heap(config.model_copy(update={"model_parallelism": 3})) - one == 2 * 3 * 10


def test_memory_outside_of_the_jvm_holds_an_engine_per_process(config):
    processes = config.model_copy(update={"execution_mode": "process"})
    per_slot = off_heap(processes)
    assert per_slot > 1024 + 3 * 10
    assert off_heap(processes.model_copy(update={"model_parallelism": 3})) == 3 * per_slot


def test_a_task_manager_has_no_more_slots_than_the_job(config):
    def slots(parallelism):
        wanted = config.model_copy(update={"model_parallelism": parallelism})
        return sizes(wanted, job_options(wanted, "start"))["taskmanager.numberOfTaskSlots"]

    assert (slots(3), slots(100)) == (3, config.slots_per_task_manager)


def test_a_container_gets_no_more_cores_than_yarn_gives(config):
    several = config.model_copy(update={"model_parallelism": 4, "thread_per_model": 2})
    loaded = Bundle(job_options(several, "start"))
    assert yarn.settings(several, loaded, 32)["yarn.containers.vcores"] == 8
    assert yarn.settings(several, loaded, 4)["yarn.containers.vcores"] == 4


def test_containers_fit_the_job_that_starts_also_where_the_configuration_has_changed(config, tmp_path_factory):
    earlier = job_options(config.model_copy(update={"model_parallelism": 3}), "start")
    now = config.model_copy(update={"model_path": str(tmp_path_factory.mktemp("smaller"))})
    assert yarn.settings(now, Bundle(earlier), 32)["yarn.containers.vcores"] == 3
    assert sizes(now, earlier) == sizes(config, earlier)


def test_jobs_of_one_name_with_two_redis_have_records_apart(config, tmp_path, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "state"))
    urls = "redis://staging:6379/0", "redis://production:6379/0"
    staging, production = (config.model_copy(update={"redis_url": url}) for url in urls)
    options = job_options(staging, "start")
    yarn.YarnApplication(staging).records.keep_earlier(options)
    assert yarn.YarnApplication(staging).records.earlier("digits") == options
    assert yarn.YarnApplication(production).records.earlier("digits") is None


def test_the_embedded_interpreter_finds_what_yarn_has_unpacked(config):
    loaded = Bundle(job_options(config, "start"), environment=Path("/archives/environment-1.tar.gz"))
    told = yarn.settings(config, loaded, 4)
    assert told["python.executable"].startswith("environment-1.tar.gz/bin/python3")
    assert told["containerized.taskmanager.env.PYTHONHOME"] == "$PWD/environment-1.tar.gz"


def test_the_model_is_found_under_the_name_of_its_archive(config):
    loaded = Bundle(job_options(config, "start"), model=Path("/archives/model-1.tar"))
    assert yarn.relocated(loaded).model.path == "model-1.tar"
    assert yarn.relocated(replace(loaded, model=None)).model.path == config.model_path


def test_several_models_are_found_under_the_name_of_their_archive(config):
    names = ("a", "b")
    options = repository.with_models(config, job_options(config, "start"), names)
    there = yarn.relocated(Bundle(bundle.moved(options, "model-1"), model=Path("/archives/model-1.tar")))
    assert there.model.path == "model-1.tar"
    assert [one.model.path for one in there.hosted] == [f"model-1.tar/{name}" for name in names]


def test_an_option_by_which_a_job_is_found_again_is_refused(config):
    config = config.model_copy(update={"flink_options": {"yarn.tags": "mine"}})
    with pytest.raises(LaunchError, match=r"flink\.options has yarn\.tags"):
        yarn.YarnApplication(config).check()


def test_a_message_of_several_lines_is_told_whole():
    output = (
        "org.apache.flink.Outer: x\n"
        "Caused by: org.apache.flink.yarn.YarnClusterDescriptor$YarnDeploymentException: too little!\n"
        "Maximum Memory: 1 Requested: 2MB.\n\n\tat org.apache.flink.A.b(A.java:1)\n"
    )
    assert yarn.refusal(output) == "too little! Maximum Memory: 1 Requested: 2MB."
    assert yarn.refusal("Caused by: java.io.IOException: disk\n\tat a.B.c(B.java:1)\n") == "java.io.IOException: disk"


def test_a_diagnosis_is_one_line():
    assert yarn.diagnosis("AM container exited\n  with 1\n") == "AM container exited with 1"
    assert (
        yarn.diagnosis("x\nCaused by: java.io.IOException: disk\n\tat a.B.c(B.java:1)") == "java.io.IOException: disk"
    )


def test_the_reason_of_an_application_that_waits_stays_the_same():
    told = "[Mon Nov 23 06:49:36 2026] Application is Activated, waiting for resources.  Last Node : 10.77.0.12"
    assert yarn.pending(told) == "Application is Activated, waiting for resources"


def test_only_addresses_of_this_machine_are_here():
    assert yarn.is_here("127.0.0.1")
    assert not yarn.is_here("192.0.2.1")
    assert not yarn.is_here("no-such-host.invalid")
