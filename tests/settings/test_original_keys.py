"""Configurations of the original's early versions."""

import pytest

from cluster_serving.launcher.config import file as config_file
from cluster_serving.settings.errors import SettingsError

OLD = """\
model:
  path: /opt/work/model
  name: my_job
data:
  src: localhost:6380
  image_shape: 3,200,100
  filter: topN(1)
params:
  core_number: 4
  performance_mode:
spark:
  master: local[*]
redis:
  maxmem: 2g
flink:
  rest: localhost:8082
secure:
  secure_enabled: false
"""


def read(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    warnings = []
    return config_file.read(path, warnings.append), warnings


def test_nested_keys_are_read_with_one_warning_that_shows_todays(tmp_path):
    config, (*_, warning) = read(tmp_path, OLD)
    assert (config.model_path, config.job_name) == ("/opt/work/model", "my_job")
    assert (config.redis_address.port, config.flink_address.port) == (6380, 8082)
    assert config.image_resize == (100, 200)
    assert config.post_processing == "topN(1)"
    assert config.core_number_per_machine == 4
    assert config.redis_max_memory == 2 << 30
    assert "modelPath: /opt/work/model (was model.path)" in warning
    assert "redisUrl: localhost:6380 (was data.src)" in warning


def test_nested_keys_without_effect_are_warned_of_one_by_one(tmp_path):
    without = {
        "model": {"mode": "single"},
        "data": {"data_type": "tensor", "tensor_shape": "[1,2]", "image_shape": "[224,224]", "resize": "false"},
        "params": {"performance_mode": "ON", "engine_type": ""},
        "spark": {"master": "local[*]"},
    }
    lines = [
        f"{name}:\n" + "".join(f"  {key}: {value}\n" for key, value in keys.items()) for name, keys in without.items()
    ]
    _, warnings = read(tmp_path, "modelPath: m\n" + "".join(lines))
    assert [warning.partition(", ")[2] for warning in warnings[:-1]] == [
        "line 3: model.mode has no effect",
        "line 5: data.data_type has no effect",
        "line 6: data.tensor_shape has no effect",
        "line 7: data.image_shape has no effect",
        "line 8: data.resize has no effect",
        "line 13: spark.master has no effect",
    ]


def test_the_earliest_version_counts_classes(tmp_path):
    config, _ = read(tmp_path, "model:\n  path: m\nparams:\n  batch_size: 8\n  top_n: 5\n")
    assert (config.max_batch_size, config.post_processing) == (8, "top_n(5)")


@pytest.mark.parametrize(
    ("top", "implied"),
    [
        ("data:\n  filter:\n", "topN(1)"),
        ("data:\n  filter: topN(3)\n", "topN(3)"),
        ("params:\n  top_n:\n", "top_n(1)"),
        ("params:\n  top_n: 3\n", "top_n(3)"),
        ("", "top_n(1)"),
    ],
)
def test_values_that_the_earliest_versions_implied_apply(tmp_path, top, implied):
    config, (_, warning) = read(tmp_path, f"spark:\n  master: local[*]\nmodel:\n  path: m\n{top}")
    assert (config.job_name, config.post_processing) == ("image_stream", implied)
    assert config.image_resize == (224, 224)
    assert "jobName: image_stream (implied by spark)" in warning
    config, _ = read(tmp_path, "model:\n  path: m\ndata:\n  filter:\n")
    assert (config.job_name, config.post_processing, config.image_resize) == ("serving_stream", "", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model:\n  pth: m\n", r"line 2: model\.pth is not a key"),
        ("redis:\n  jobName: m\n", r"line 2: redis\.jobName is not a key"),
        ("model:\n  path: m\nmodelPath: n\n", "line 3: modelPath is given a second time"),
        ("model:\n  path: m\nparams:\n  core_number: many\n", "line 4: coreNumberPerMachine is 'many'"),
        ("model:\n  path: m\nsecure:\n  secure_enabled: true\n", "rediss://"),
    ],
)
def test_mistakes_in_nested_keys_are_named_with_their_line(tmp_path, text, message):
    with pytest.raises(SettingsError, match=message):
        read(tmp_path, text)


def test_the_sample_file_of_the_last_version_is_read(tmp_path):
    sample = (
        "modelPath: /path/to/model\nqueueUsed: redis\nredisUrl:\nredisMaxmemory:\nredisTimeout:\n"
        "recordEncrypted:\nmodelEncrypted:\nperformance_mode:\nflinkRestUrl:\nmodelParallelism:\nthreadPerModel:\n"
        "postProcessing:\nredisSecureEnabled: false\nredisSecureTrustStorePath:\n"
        "redisSecureTrustStorePassword: 1234qwer\n"
    )
    config, warnings = read(tmp_path, sample)
    assert config.redis_address.port == 6379
    assert not any("1234qwer" in warning for warning in warnings)
    with pytest.raises(SettingsError, match="rediss://"):
        read(tmp_path, sample.replace("redisSecureEnabled: false", "redisSecureEnabled: true"))
