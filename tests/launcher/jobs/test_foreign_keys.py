"""Keys of another program under the names of a job, in a real Redis."""

import pytest

from cluster_serving.launcher.commands import doctor
from cluster_serving.launcher.config.file import read
from cluster_serving.launcher.jobs import foreign_keys
from cluster_serving.launcher.jobs.store import opened
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import JobKeys


@pytest.fixture
def config(db, job, redis_server, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(f"jobName: {job}\nmodelPath: model\nredisUrl: localhost:{redis_server.port}\n")
    yield read(path)
    db.delete(*JobKeys(job).lasting())


def test_all_lasting_keys_have_a_type(job):
    keys = JobKeys(job)
    assert foreign_keys.types_of(keys).keys() == set(keys.lasting())


def test_a_key_of_another_program_is_named_with_what_to_do(db, job, config, tmp_path):
    db.set(job, "5")
    db.rpush(JobKeys(job).slots(), "5")
    db.incr(JobKeys(job).answered)
    told = (
        f"Redis has keys of another program under names of job {job}: '{job}' is a string, and has to be a stream; "
        f"'{job}:slots' is a list, and has to be a hash. Choose another jobName, or remove them (redis-cli DEL) if "
        "nothing needs them"
    )
    with pytest.raises(ServingError) as refused, opened(config) as store:
        store.slots()
    assert str(refused.value) == told
    found = {each.topic: each for each in doctor.examine(config, tmp_path / "config.yaml")}
    assert (found["redis"].state, found["redis"].text) == ("failed", told)


def test_an_error_of_another_kind_stays_as_it_is(db, job, config):
    db.set(job, "5")
    with pytest.raises(Exception, match="unknown command") as failed, opened(config) as store:
        store.client.execute_command("NOSUCH")
    assert not isinstance(failed.value, ServingError)
