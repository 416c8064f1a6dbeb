"""Files of TensorFlow Serving's options beside its models: batches, platforms and metrics."""

import pytest

from cluster_serving.launcher import origins

BATCHING = """
max_batch_size { value: 128 } batch_timeout_micros { value: 1500 } max_enqueued_batches { value: 100 }
num_batch_threads { value: 8 } allowed_batch_sizes: 8 allowed_batch_sizes: 128 novel: 3
"""
PLATFORM = """
platform_configs { key: "tensorflow" value { source_adapter_config {
  [type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig] { legacy_config {
    session_config { intra_op_parallelism_threads: 4 } saved_model_tags: "serve"
    batching_parameters { max_batch_size { value: 64 } } } } } } }
"""
MODELS = "model_config_list { config { name: 'a' base_path: '/m/a' } config { name: 'b' base_path: '/m/b' } }"


@pytest.fixture
def models(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "1" / "variables").mkdir(parents=True)
        (tmp_path / name / "1" / "saved_model.pb").touch()
    (tmp_path / "README.txt").write_text("# see the wiki: {")
    return tmp_path


def test_batches_and_metrics_of_several_models(models):
    (models / "models.config").write_text(MODELS)
    (models / "batching.txt").write_text(BATCHING)
    (models / "monitoring.config").write_text("prometheus_config { enable: true path: '/metrics' }")
    taken = origins.read(models)
    assert taken.own == {name: {"maxBatchSize": 128, "batchTimeout": 2} for name in "ab"}
    assert taken.keys["maxQueueLength"] == 12_800
    starts = ("num_batch_threads of batching.txt", "allowed_batch_sizes of batching.txt", "novel of batching.txt")
    for line, start in zip(taken.left[-4:], (*starts, "prometheus_config of monitoring.config"), strict=True):
        assert line.startswith(start)


def test_the_batches_of_a_platform(models):
    (models / "a" / "platform.pbtxt").write_text(PLATFORM)
    taken = origins.read(models / "a")
    assert taken.keys == {"jobName": "a", "watchModel": True, "maxBatchSize": 64}
    assert taken.left[-2:] == [
        "saved_model_tags of legacy_config of platform.pbtxt: the graph with the tag serve is loaded",
        "session_config of legacy_config of platform.pbtxt: threadPerModel has the threads of a session, and device "
        "its device",
    ]


def test_a_model_has_batches_of_its_own_before_those_of_all(models):
    """`--enable_per_model_batching_parameters`; the file beside the model is no part of it."""
    (models / "models.config").write_text(MODELS)
    splits = "enable_large_batch_splitting { value: true } max_execution_batch_size { value: 8 }"
    (models / "batching.txt").write_text("max_batch_size { value: 128 }" + splits)
    (models / "ssl.config").write_text('server_key: "secret" client_verify: true')
    (models / "a" / "1" / "batching_params.pbtxt").write_text(
        "max_batch_size { value: 2 } pad_variable_length_inputs: true"
    )
    (models / "b" / "1" / "assets.extra").mkdir()
    (models / "b" / "1" / "assets.extra" / "saved_model_config.pb").touch()
    taken = origins.read(models)
    assert taken.own == {"a": {"maxBatchSize": 2}, "b": {"maxBatchSize": 8}}
    assert not any("batching_params" in name or "extra" in name for name in taken.files)
    said = "\n".join(taken.left)
    assert "a: pad_variable_length_inputs of batching_params.pbtxt: the key padding" in said
    assert f"b: 1/assets.extra/saved_model_config.pb of {models}/b: not read by a job" in said
    assert "client_verify, server_key of ssl.config: the section http" in said and "secret" not in said
