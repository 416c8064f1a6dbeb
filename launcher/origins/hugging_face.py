"""Hugging Face: a folder of the Hub with `config.json`, the model as ONNX or OpenVINO IR, and its tokenizer."""

from pathlib import Path

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import images, sentence_transformers, several
from cluster_serving.launcher.origins.fields import IN_MODEL, Fields, read_fields
from cluster_serving.launcher.origins.taken import Taken, external_data

EXPECTED = "a folder of Hugging Face, config.json and model.onnx"

_CONFIG = "config.json"
_MODELS = ("model.onnx", "onnx/model.onnx", "openvino_model.xml", "openvino/openvino_model.xml")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "tf_model.h5", "flax_model.msgpack")
_CLASSIFIERS = ("ForSequenceClassification", "ForImageClassification")
_TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForImageClassification": "image-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForObjectDetection": "object-detection",
    "ForSemanticSegmentation": "semantic-segmentation",
    "ForAudioClassification": "audio-classification",
}
"""End of the name of an architecture → task of `optimum-cli`, which cannot guess it of a folder."""

_TEXT = "logits of the next token: a handler generates texts (docs/how-to/handler-models.md)"
_ANSWERS = {
    "ForTokenClassification": "logits of each token; id2label of config.json names the classes",
    "ForQuestionAnswering": "logits of the first and the last token of the words that answer",
    "ForMaskedLM": "logits of each token",
    "ForCTC": "logits of each moment of a sound",
    "ForObjectDetection": "boxes and logits; id2label of config.json names the classes",
    "ForSemanticSegmentation": "logits of each place; id2label of config.json names the classes",
    "ForCausalLM": _TEXT,
    "LMHeadModel": _TEXT,
    "ForConditionalGeneration": _TEXT,
}
"""End of the name of an architecture → what its model file answers; a pipeline of transformers makes more of it."""

_GENERATES = tuple(end for end, what in _ANSWERS.items() if what is _TEXT)

_NEEDLESS = (
    *("README.md", "LICENSE*", "*.safetensors*", "*.bin", "*.h5", "*.msgpack", "*.onnx*", "onnx", "openvino*"),
    *("vocab.*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "*.model", "[0-9]_*"),
)
"""What the files that are taken hold, too, or what another reader names."""


def read(path: Path) -> Taken | None:
    """Return the model of a folder; None if it has no `config.json`, or no model that is named as on the Hub."""
    if not (path / _CONFIG).is_file():
        return None
    config = read_fields(path / _CONFIG) or Fields({})
    model = next((path / name for name in _MODELS if (path / name).is_file()), None)
    if model is None:
        _refuse(path, config)
        return None
    taken = Taken(f"the Hugging Face model {path}")
    taken.name(path.resolve().name)
    weights = model.with_suffix(".bin")
    # ONNX may have its weights in files beside it.
    taken.files |= {file.name: file for file in (*model.parent.glob(f"{model.name}*"), weights) if file.is_file()}
    taken.files |= external_data(model, model.parent)
    taken.files |= {file.name: file for file in path.glob("tokenizer*.json")}
    sentence_transformers.take(taken, path)
    images.take(taken, path, str(config.take("model_type", "")))
    _take_classes(taken, path, config)
    if "imageColor" in taken.keys and "tokenizer.json" in taken.files:
        taken.keys["tokenizer"] = "none"
        taken.left.append(
            "texts of a model that takes images: clients send token ids, as its tokenizer makes them; remove the key "
            "tokenizer if it takes a text alone"
        )
    taken.left += config.left(_CONFIG, IN_MODEL)
    known = {_CONFIG, *images.FILES, *sentence_transformers.FILES, *taken.files}
    known |= {file.name for pattern in _NEEDLESS for file in path.glob(pattern)}
    taken.left += several.unread(path, known)
    others = sorted(file.name for file in model.parent.glob("model_*.onnx"))
    if others:
        taken.left.append(f"{', '.join(others)}: copy one over model/{model.name} if it is the one to serve")
    if (path / "vocab.txt").is_file() and "tokenizer.json" not in taken.files:
        taken.left.append(
            "the tokenizer, which is not in tokenizer.json: AutoTokenizer.from_pretrained(...).save_pretrained('model')"
            " of the package transformers writes that file"
        )
    return taken


def _refuse(path: Path, config: Fields) -> None:
    task = next((task for end, task in _TASKS.items() if _architecture(config).endswith(end)), "feature-extraction")
    parts = sorted(file.name for place in (path, path / "onnx") for file in place.glob("*coder*_model*.onnx"))
    if parts:
        raise LaunchError(
            f"{path} holds a model in parts ({', '.join(parts)}), which generates texts: load them in a handler "
            "(docs/how-to/handler-models.md)"
        )
    if _architecture(config).endswith(_GENERATES):
        raise LaunchError(
            f"{path} holds a model that generates texts ({_architecture(config)}): a handler loads it, with the "
            "library of your choice (docs/how-to/handler-models.md, answers in pieces)"
        )
    # With its own modules, the file would pool already, and not say so; the files beside it say how.
    library = "--library transformers " if task == "feature-extraction" else ""
    for file in (file for pattern in _WEIGHTS for file in sorted(path.glob(pattern))):
        raise LaunchError(
            f"{path} holds weights ({file.name}), without the code that computes with them: run pip install "
            f"'optimum-onnx[onnxruntime]' and optimum-cli export onnx {library}--task {task} --model {path} "
            f"{path}/onnx, then cluster-serving-init --from {path}"
        )


def _architecture(config: Fields) -> str:
    return str(next(iter(config.every("architectures")), ""))


def _take_classes(taken: Taken, path: Path, config: Fields) -> None:
    architecture = _architecture(config)
    answers = next((what for end, what in _ANSWERS.items() if architecture.endswith(end)), None)
    if answers:
        taken.left.append(f"what transformers makes of the outputs of {architecture}: answers are {answers}")
        config.take("id2label"), config.take("label2id")
    if not architecture.endswith(_CLASSIFIERS):
        return
    names = config.take("id2label")
    names = names if isinstance(names, dict) else {}
    config.take("label2id"), config.take("num_labels")
    activation, is_reranker = _activation(path, config)
    problem = config.take("problem_type")
    single = len(names) == 1
    if activation is None:
        several = "softmax" if not is_reranker else "Identity"
        activation = {"regression": "Identity", "multi_label_classification": "Sigmoid"}.get(
            str(problem), "Sigmoid" if single else several
        )
    if activation not in ("Identity", "Sigmoid", "softmax"):
        taken.left.append(f"the activation {activation} of the logits: no filter computes it, a handler does")
        return
    filters = [] if activation == "Identity" else [activation.lower()]
    if names and not single and problem != "regression":
        taken.labels(names)
        filters += [f"topN({min(5, len(names))})", "labels(labels.txt)"]
    if filters:
        taken.keys["postProcessing"] = " | ".join(filters)
    if is_reranker:
        taken.keys["tokenizer"] = "pair"
    elif single and _architecture(config).endswith(_CLASSIFIERS[0]):
        taken.left.append("a second text: set tokenizer: pair if the model compares two, as a reranker does")


def _activation(path: Path, config: Fields) -> tuple[str | None, bool]:
    """Return the class of `torch.nn` for the logits if a file names it, and True for a reranker (CrossEncoder)."""
    own, older = config.part("sentence_transformers"), "sbert_ce_default_activation_function"
    beside = read_fields(path / "config_sentence_transformers.json") or Fields({})
    is_reranker = beside.take("model_type") == "CrossEncoder" or "activation_fn" in own or older in config
    named = beside.take("activation_fn") or own.take("activation_fn") or config.take(older)
    own.take("version")
    return str(named).rpartition(".")[2] if named else None, is_reranker
