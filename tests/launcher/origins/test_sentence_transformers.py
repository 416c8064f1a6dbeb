"""What the files of sentence-transformers beside a model say."""

import json

import pytest

from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.origins import sentence_transformers
from cluster_serving.launcher.origins.taken import Taken


def settings(folder):
    taken = Taken("a model")
    sentence_transformers.take(taken, folder)
    return taken.keys


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_pooling_length_and_limit_become_settings(tmp_path):
    write(
        tmp_path,
        "modules.json",
        [
            {"type": f"sentence_transformers.models.{name}", "path": path}
            for name, path in (("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
        ],
    )
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True})
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": 256})
    assert settings(tmp_path) == {"pooling": "mean", "normalize": True, "maxTokens": 256}
    (tmp_path / "config.yaml").write_text(config_file.template(settings(tmp_path)))
    config = config_file.read(tmp_path / "config.yaml")
    assert (config.pooling, config.normalize, config.max_tokens) == ("mean", True, 256)


@pytest.mark.parametrize("content", [{}, [], "text", None, {"pooling_mode": "other"}, {"max_seq_length": None}])
def test_what_they_do_not_tell_keeps_its_default(tmp_path, content):
    for name in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json"):
        write(tmp_path, name, content)
    assert settings(tmp_path) == {}


def test_no_files_are_no_settings(tmp_path):
    (tmp_path / "modules.json").write_text("{")
    assert settings(tmp_path) == {}
    assert settings(tmp_path / "missing") == {}


def modules(folder, *kinds, **configs):
    paths = [f"{at}_{kind}" if at else "" for at, kind in enumerate(kinds)]
    content = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in zip(paths, kinds, strict=True)
    ]
    write(folder, "modules.json", content)
    for path, kind in zip(paths[1:], kinds[1:], strict=True):
        write(folder, f"{path}/config.json", configs.get(kind, {}))
    return paths


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"pooling_mode": "lasttoken"}, {"pooling": "last"}),
        ({"pooling_mode": ["cls", "weightedmean"]}, {"pooling": "cls+weightedmean"}),
        ({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True}, {"pooling": "max+mean"}),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, {"pooling": "mean_sqrt_len_tokens"}),
        ({"pooling_mode": "mean", "include_prompt": False}, {"pooling": "mean", "poolPrompt": False}),
    ],
)
def test_poolings_of_the_library(tmp_path, config, keys):
    modules(tmp_path, "Transformer", "Pooling", Pooling=config)
    assert settings(tmp_path) == keys


def test_layers_are_taken_and_a_module_that_is_not_known_is_named(tmp_path):
    dense = {"in_features": 16, "activation_function": "torch.nn.modules.activation.Tanh", "new": 1}
    pooling = {"pooling_mode": "mean"}
    modules(tmp_path, "Transformer", "Pooling", "Dense", "Normalize", Pooling=pooling, Dense=dense)
    (tmp_path / "2_Dense" / "model.safetensors").touch()
    taken = Taken("a model")
    sentence_transformers.take(taken, tmp_path)
    assert taken.keys == {"pooling": "mean", "normalize": True, "embeddingLayers": "2_Dense"}
    assert sorted(taken.files) == ["2_Dense/config.json", "2_Dense/model.safetensors"]
    assert taken.left == ["new of 2_Dense/config.json: no key of config.yaml means this"]
    modules(tmp_path, "Transformer", "CNN", "Pooling", Pooling=pooling)
    taken = Taken("a model")
    sentence_transformers.take(taken, tmp_path)
    assert taken.keys == {} and taken.left[0].startswith("1_CNN of modules.json, a CNN: answers are vectors of tokens")


def test_prompts(tmp_path):
    prompts = {"query": "query: ", "document": "passage: ", "empty": ""}
    write(tmp_path, "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": "query"})
    taken = Taken("a model")
    sentence_transformers.take(taken, tmp_path)
    assert taken.keys == {"prompt": "query: "}
    assert "the prompts document 'passage: '" in taken.left[0]
