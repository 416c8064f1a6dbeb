"""Configuration by environment variables."""

import pytest

from cluster_serving.launcher.config import file as config_file
from cluster_serving.settings.errors import SettingsError


@pytest.fixture
def read(tmp_path, monkeypatch):
    def read(text="modelPath: m", **variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"CLUSTER_SERVING_{name}", value)
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return config_file.read(path)

    return read


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("JOB_NAME", "{serving_stream}", "job_name", "{serving_stream}"),
        ("JOB_NAME", "2024", "job_name", "2024"),
        ("MODEL_PATH", "/models/a #1", "model_path", "/models/a #1"),
        ("PAYLOAD_FOLDER", "/payloads: here", "payload_folder", "/payloads: here"),
        ("IMAGE_LAYOUT", "CHW", "image_layout", "CHW"),
        ("INPUTS", "x: 0, 7", "inputs", ("x: 0", "7")),
        ("OUTPUTS", "1", "outputs", ("1",)),
        ("OUTPUTS", "[a, b]", "outputs", ("a", "b")),
        ("IMAGE_RESIZE", "640,480", "image_resize", (640, 480)),
        ("INPUT_SHAPES", "[[3, 4]]", "input_shapes", ((3, 4),)),
        ("GREEDY_BATCHING", "false", "greedy_batching", False),
        ("REDIS_MAX_MEMORY", "64m", "redis_max_memory", 64 << 20),
        ("MAX_REQUEST_BYTES", "1000", "max_request_bytes", 1000),
    ],
)
def test_text_is_taken_as_it_is_and_other_values_as_in_the_file(read, name, text, attribute, value):
    assert getattr(read(**{name: text}), attribute) == value


def test_an_empty_variable_is_none(read):
    config = read("modelPath: /m\nmaxBatchSize: 7", MODEL_PATH="", MAX_BATCH_SIZE="", JOB_NAME="", REDIS_URL="")
    assert (config.model_path, config.max_batch_size, config.job_name) == ("/m", 7, "serving_stream")


@pytest.mark.parametrize(
    ("name", "text"), [("MAX_BATCH_SIZE", "2024-13-45"), ("BATCH_TIMEOUT", "\x07"), ("JOB_NAME", "a b")]
)
def test_what_cannot_be_used_is_named(read, name, text):
    with pytest.raises(SettingsError, match=f"environment variable CLUSTER_SERVING_{name}: "):
        read(**{name: text})
