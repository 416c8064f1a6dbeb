"""Hugging Face: a folder of the Hub with `config.json`, the model as ONNX or OpenVINO IR, and its tokenizer."""

from pathlib import Path

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import images, sentence_transformers
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
    taken.left += config.left(_CONFIG, IN_MODEL)
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
    if not _architecture(config).endswith(_CLASSIFIERS):
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
