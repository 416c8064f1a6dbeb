"""What a job brings along."""

import pytest

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.job.options import JobOptions, ModelOptions
from cluster_serving.launcher.shipping.bundle import _needs
from tests.support.fixtures.handled import NO_NEGATIVES, write


@pytest.mark.parametrize(
    ("options", "extras"),
    [
        ({}, set()),
        ({"payload_log_sample": 0.1, "payload_log_to": "/log"}, set()),
        ({"payload_log_sample": 0.1, "payload_log_to": "s3://bucket/log"}, {"remote", "s3"}),
        ({"payload_log_to": "s3://bucket/log"}, set()),
        ({"tensorboard": "/folder"}, {"tensorboard"}),
    ],
)
def test_a_job_brings_the_packages_that_its_logs_need(tmp_path, options, extras):
    model = ModelOptions(str(write(tmp_path, NO_NEGATIVES)))
    keys = {"payload_log_sample": 0.0, "payload_log_to": "payload-log", "tensorboard": ""} | options
    found, _ = _needs(JobOptions("start", model, RedisOptions("redis://localhost", stages=tuple(keys.items()))))
    assert found == {"job"} | extras
