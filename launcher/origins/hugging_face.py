"""Hugging Face: a folder of the Hub with `config.json`, the model as ONNX or OpenVINO IR, and its tokenizer."""

from pathlib import Path
from typing import Any

from cluster_serving.launcher.config import embedding
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins.taken import Taken

EXPECTED = "a folder of Hugging Face, config.json and model.onnx"

_MODELS = ("model.onnx", "onnx/model.onnx", "openvino_model.xml", "openvino/openvino_model.xml")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "tf_model.h5", "flax_model.msgpack")


def read(path: Path) -> Taken | None:
    """Return the model of a folder; None if it has no `config.json`, or no model that is named as on the Hub."""
    if not (path / "config.json").is_file():
        return None
    model = next((path / name for name in _MODELS if (path / name).is_file()), None)
    if model is None:
        _refuse(path)
        return None
    taken = Taken(f"the Hugging Face model {path}")
    taken.name(path.resolve().name)
    weights = model.with_suffix(".bin")
    # ONNX may have its weights in files beside it.
    taken.files |= {file.name: file for file in (*model.parent.glob(f"{model.name}*"), weights) if file.is_file()}
    taken.files |= {file.name: file for file in path.glob("tokenizer*.json")}
    taken.keys |= embedding.settings(path)
    _take_images(taken, _json(path / "preprocessor_config.json"))
    _take_classes(taken, _json(path / "config.json"))
    others = sorted(file.name for file in model.parent.glob("model_*.onnx"))
    if others:
        taken.left.append(f"{', '.join(others)}: copy one over model/{model.name} if it is the one to serve")
    if (path / "vocab.txt").is_file() and "tokenizer.json" not in taken.files:
        taken.left.append(
            "the tokenizer, which is not in tokenizer.json: AutoTokenizer.from_pretrained(...).save_pretrained('model')"
            " of the package transformers writes that file"
        )
    return taken


def _refuse(path: Path) -> None:
    for file in (file for pattern in _WEIGHTS for file in sorted(path.glob(pattern))):
        raise LaunchError(
            f"{path} holds weights ({file.name}), without the code that computes with them: run pip install "
            f"'optimum[onnxruntime]' and optimum-cli export onnx --model {path} {path}-onnx, then cluster-serving-init "
            f"--from {path}-onnx"
        )


def _take_images(taken: Taken, images: dict[str, Any]) -> None:
    size = images.get("crop_size") if images.get("do_center_crop") else images.get("size")
    if isinstance(size, dict) and size.keys() >= {"height", "width"}:
        taken.keys |= {"imageColor": "RGB", "imageResize": f"{size['width']},{size['height']}"}
    if images.get("do_center_crop"):
        taken.left.append("the crop of images: imageResize scales the whole image to its size")
    if images.get("do_rescale"):
        taken.keys["imageScale"] = images.get("rescale_factor", 1 / 255)
    if images.get("do_normalize"):
        taken.keys |= {"imageMean": images.get("image_mean", [0]), "imageStd": images.get("image_std", [1])}


def _take_classes(taken: Taken, config: dict[str, Any]) -> None:
    names, kind = config.get("id2label"), str((config.get("architectures") or [""])[0])
    if not isinstance(names, dict) or not kind.endswith(("ForSequenceClassification", "ForImageClassification")):
        return
    taken.labels(names)
    if config.get("problem_type") == "multi_label_classification":
        taken.left.append("the sigmoid of a model with several labels at once: a handler computes it")
    else:
        taken.keys["postProcessing"] = f"softmax | topN({min(5, len(names))}) | labels(labels.txt)"


def _json(path: Path) -> dict[str, Any]:
    content = embedding.read_json(path)
    return content if isinstance(content, dict) else {}
