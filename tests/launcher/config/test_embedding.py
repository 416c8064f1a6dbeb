"""What the files of sentence-transformers beside a model say."""

import json

import pytest

from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.embedding import settings


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_pooling_length_and_limit_become_settings(tmp_path):
    write(
        tmp_path,
        "modules.json",
        [{"type": f"sentence_transformers.models.{name}"} for name in ("Pooling", "Normalize")],
    )
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True})
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": 256})
    assert settings(tmp_path) == {"pooling": "mean", "normalize": True, "maxTokens": 256}
    (tmp_path / "config.yaml").write_text(config_file.template(settings(tmp_path)))
    config = config_file.read(tmp_path / "config.yaml")
    assert (config.pooling, config.normalize, config.max_tokens) == ("mean", True, 256)


@pytest.mark.parametrize("content", [{}, [], "text", None, {"pooling_mode": "max"}, {"max_seq_length": None}])
def test_what_they_do_not_tell_keeps_its_default(tmp_path, content):
    for name in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json"):
        write(tmp_path, name, content)
    assert settings(tmp_path) == {}


def test_no_files_are_no_settings(tmp_path):
    (tmp_path / "modules.json").write_text("{")
    assert settings(tmp_path) == {}
    assert settings(tmp_path / "missing") == {}
