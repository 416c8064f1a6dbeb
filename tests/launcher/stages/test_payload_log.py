"""The keys of the payload log."""

import pytest

from cluster_serving.connectors.stages.payload_log.stage import Keys
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.shipping.bundle import _needs
from cluster_serving.settings.errors import SettingsError
from tests.support.fixtures.handled import NO_NEGATIVES, write


def test_the_payload_log_has_a_share_a_place_and_columns_to_leave_out(read, tmp_path):
    config = read("modelPath: m\npayloadLog: {sample: 0.01, to: s3://bucket/log, without: [uri, input.x]}")
    options = dict(job_options(config, "s").redis.stages)
    assert (options["payload_log_sample"], options["payload_log_to"]) == (0.01, "s3://bucket/log")
    assert options["payload_log_without"] == ("uri", "input.x")
    usual = dict(job_options(read("modelPath: m\npayloadLog: {sample: 1, without: uri}"), "s").redis.stages)
    assert (usual["payload_log_sample"], usual["payload_log_to"]) == (1, str(tmp_path / "payload-log"))
    with pytest.raises(SettingsError, match=r"payloadLog.sample is 2 \(a number\); expected a number from 0 to 1"):
        read("modelPath: m\npayloadLog: {sample: 2}")


def test_without_keys_nothing_is_logged(read):
    assert job_options(read("modelPath: m"), "s").redis.of_stage(Keys) == Keys()


@pytest.mark.parametrize(
    ("sample", "to", "extras"),
    [(0.1, "/log", set()), (0.1, "s3://bucket/log", {"remote", "s3"}), (0.0, "s3://bucket/log", set())],
)
def test_a_job_brings_the_packages_of_the_store_of_its_log(read, tmp_path, sample, to, extras):
    write(tmp_path, NO_NEGATIVES)
    found, _ = _needs(job_options(read(f"modelPath: .\npayloadLog: {{sample: {sample}, to: '{to}'}}"), "s"))
    assert found == {"job"} | extras
