"""sentence-transformers: the files beside a model that say how its vectors become an embedding."""

from pathlib import Path
from typing import Any

from cluster_serving.launcher.origins.fields import FACT, IN_MODEL, Fields, read_fields, read_json
from cluster_serving.launcher.origins.taken import Taken

_MODULES = "modules.json"
_CONFIG = "config_sentence_transformers.json"
_LIMITS = "sentence_bert_config.json"
FILES = (_MODULES, _CONFIG, _LIMITS)
# As in `job.models.text`, which the launcher does not import.
NO_LIMIT = 1 << 24
WEIGHTS = "model.safetensors"
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "Sigmoid", "SiLU")
_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}
"""Switches of older files, in the order in which the library joins the vectors → our name."""

_NAMES = {*_POOLING.values(), "lasttoken"}
_FACTS = ("__version__", "model_type", "similarity_fn_name")
_EXPORT = (
    "export the model with all its modules, and take that over: optimum-cli export onnx --library "
    "sentence_transformers --task feature-extraction --model {folder} onnx"
)


def take(taken: Taken, folder: Path) -> None:
    """Add what the files in a folder say: keys of `config.yaml`, layers, and lines for what is not computed here.

    A folder without such files adds nothing.
    """
    modules = _modules(folder)
    if modules:
        _take_modules(taken, folder, modules)
    elif (pooling := read_fields(folder / "1_Pooling" / "config.json")) is not None:
        _take_pooling(taken, "1_Pooling", pooling)
    _take_limits(taken, folder, read_fields(folder / _LIMITS))
    if (config := read_fields(folder / _CONFIG)) is not None:
        _take_config(taken, config)


def _modules(folder: Path) -> list[Fields]:
    content = read_json(folder / _MODULES)
    return [Fields(module) for module in content if isinstance(module, dict)] if isinstance(content, list) else []


def _take_modules(taken: Taken, folder: Path, modules: list[Fields]) -> None:
    keys: dict[str, Any] = {}
    layers: list[str] = []
    for module in modules:
        kind = str(module.take("type")).rpartition(".")[2]
        path = str(module.take("path", ""))
        module.take("idx"), module.take("name")
        taken.left += module.left(_MODULES)
        reason = _take_module(taken, folder, kind, path, keys, layers)
        if reason:
            taken.left.append(
                f"{path or kind} of {_MODULES}, {reason}: answers are vectors of tokens, without pooling and all that "
                f"follows; {_EXPORT.format(folder=folder)}"
            )
            return
    if layers:
        keys["embeddingLayers"] = ",".join(layers)
    taken.keys |= keys


def _take_module(taken: Taken, folder: Path, kind: str, path: str, keys: dict[str, Any], layers: list[str]) -> str:
    """Add a module to keys and layers; return why it cannot be computed here, or nothing."""
    config = read_fields(folder / path / "config.json") if path else None
    config = Fields({}) if config is None else config
    if kind in ("Transformer", "Dropout"):
        return ""
    if keys.get("normalize"):
        return f"a {kind} behind a Normalize"
    if kind == "Pooling":
        found = _pooling(config)
        keys |= found
        taken.left += _left_of(config, path)
        return "" if found.get("pooling") else "a pooling that is not known here"
    if "pooling" not in keys or kind not in ("Normalize", "Dense", "LayerNorm"):
        return f"a {kind}"
    return _take_layer(taken, folder, kind, path, config, keys, layers)


def _take_layer(
    taken: Taken, folder: Path, kind: str, path: str, config: Fields, keys: dict[str, Any], layers: list[str]
) -> str:
    names = {config.take(name, "sentence_embedding") for name in ("module_input_name", "module_output_name")}
    if names != {"sentence_embedding"}:
        return f"a {kind} of {', '.join(sorted(map(str, names)))}"
    if kind == "Normalize":
        keys["normalize"] = True
        return ""
    activation = str(config.take("activation_function", "Tanh")).rpartition(".")[2]
    if kind == "Dense" and activation not in ACTIVATIONS:
        return f"a Dense with {activation}"
    weights = folder / path / WEIGHTS
    if not weights.is_file():
        return f"a {kind} without {WEIGHTS}"
    # The weights have the sizes.
    for name in ("in_features", "out_features", "bias", "dimension", "use_residual"):
        config.take(name)
    taken.files |= {f"{path}/{file.name}": file for file in (weights, folder / path / "config.json") if file.is_file()}
    taken.left += _left_of(config, path)
    layers.append(path)
    return ""


def _take_pooling(taken: Taken, path: str, config: Fields) -> None:
    taken.keys |= _pooling(config)
    taken.left += _left_of(config, path)


def _pooling(config: Fields) -> dict[str, Any]:
    # Newer files name it; older ones have a switch for each kind.
    named = config.every("pooling_mode")
    switched = [kind for switch, kind in _POOLING.items() if config.take(switch)]
    kinds = ["last" if kind == "lasttoken" else kind for kind in named or switched]
    config.take("word_embedding_dimension"), config.take("embedding_dimension")
    if not kinds or not _NAMES.issuperset(kinds):
        return {}
    found: dict[str, Any] = {"pooling": "+".join(kinds)}
    if config.take("include_prompt", True) is False:
        found["poolPrompt"] = False
    return found


def _left_of(config: Fields, path: str) -> list[str]:
    return config.left(f"{path}/config.json")


def _take_limits(taken: Taken, folder: Path, limits: Fields | None) -> None:
    if limits is None:
        return
    # Newer files have the limit beside the tokenizer; the one in tokenizer.json does not count for the library.
    tokenizer = read_fields(folder / "tokenizer_config.json") or Fields({})
    limit = limits.take("max_seq_length") or tokenizer.take("model_max_length")
    if isinstance(limit, int) and 0 < limit < NO_LIMIT:
        taken.keys["maxTokens"] = limit
    taken.left += limits.leave(_LIMITS, IN_MODEL, "transformer_task", "modality_config", "module_output_name")
    if limits.take("do_lower_case"):
        taken.left.append(f"do_lower_case of {_LIMITS}: clients send texts in lower case")
    taken.left += limits.left(_LIMITS)


def _take_config(taken: Taken, config: Fields) -> None:
    config.take("activation_fn")
    taken.left += config.leave(_CONFIG, FACT, *_FACTS)
    prompts, name = config.take("prompts", {}), config.take("default_prompt_name")
    prompts = {key: text for key, text in prompts.items() if text} if isinstance(prompts, dict) else {}
    if isinstance(name, str) and prompts.get(name):
        taken.keys["prompt"] = prompts.pop(name)
    if prompts:
        shown = ", ".join(f"{key} {text!r}" for key, text in prompts.items())
        more = "; one that stands before all texts is the key prompt" if "prompt" not in taken.keys else ""
        taken.left.append(f"the prompts {shown} of {_CONFIG}: clients put them before their texts{more}")
    taken.left += config.left(_CONFIG)
