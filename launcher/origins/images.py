"""Images and sounds of Hugging Face: a `preprocessor_config.json`, or the part of a `processor_config.json`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_serving.launcher.origins.fields import FACT, Fields, read_fields
from cluster_serving.launcher.origins.taken import Taken

_FILE = "preprocessor_config.json"
FILES = (_FILE, "processor_config.json")
"""The second one has the image processor of a model of images and texts, as transformers 5 writes it."""
_CLASSES = ("image_processor_type", "feature_extractor_type")
_FACTS = ("processor_class", "_valid_processor_keys", "auto_map")
_SAVE = "AutoImageProcessor.from_pretrained(...).save_pretrained(...) of transformers writes a file that has it"
_OWN = (
    "clients, or preprocess of a handler, send images as that class leaves them: compare an answer with the library's"
)
_RESAMPLE = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Names of Pillow's numbers."""
_NEAREST, _BILINEAR, _BICUBIC = 0, 2, 3
_WARPED = 384
"""Size from which ConvNeXT scales the whole image."""


@dataclass(frozen=True)
class _Kind:
    """What a class does unless the file says otherwise.

    Attributes:
        square: A size of one number is that of both edges; otherwise that of the shorter one.
        crops: It cuts out the middle.
        resample: Pillow's number of how it scales.
        edge: Factor of the shorter edge before the crop.
    """

    square: bool = True
    crops: bool = False
    resample: int = _BICUBIC
    edge: float = 1


_SHORTEST = _Kind(square=False, crops=True)
_KINDS = {
    "vit": _Kind(resample=_BILINEAR),
    "segformer": _Kind(resample=_BILINEAR),
    **dict.fromkeys(("beit", "blip", "efficientnet", "owlvit", "pvt", "siglip"), _Kind()),
    "deit": _Kind(crops=True),
    **dict.fromkeys(("bit", "chineseclip", "clip", "mobilevit"), _SHORTEST),
    **dict.fromkeys(("mobilenetv1", "mobilenetv2"), _Kind(False, True, _BILINEAR)),
    "levit": _Kind(False, True, edge=256 / 224),
    "convnext": _Kind(False),
    "poolformer": _Kind(False, True),
}
"""Classes whose steps these keys are, by their names in small letters, without the end."""


def take(taken: Taken, folder: Path, model_type: str = "") -> None:
    """Add the keys for images, and lines for what is not computed here; nothing without the file.

    `model_type` is that of `config.json`: older files name no class.
    """
    alone, whole = read_fields(folder / _FILE), read_fields(folder / FILES[1])
    if alone is not None:
        _take(taken, alone, _FILE, model_type)
    if whole is not None:
        for part in ("image_processor", "feature_extractor") if alone is None else ():
            _take(taken, whole.part(part), FILES[1], model_type)
        taken.left += whole.leave(FILES[1], FACT, "processor_class") + whole.left(FILES[1])


def _take(taken: Taken, images: Fields, file: str, model_type: str) -> None:
    if "sampling_rate" in images:
        _take_sounds(taken, images, file)
        return
    if not {"image_mean", "size", "do_normalize", "do_resize"}.intersection(images):
        return
    named = [str(images.take(name)) for name in _CLASSES if name in images]
    name = re.sub("(ImageProcessor|FeatureExtractor)(Fast|Pil)?$", "", (named or [model_type])[0])
    kind = _KINDS.get(re.sub("[-_]", "", name).lower())
    if kind is None:
        whose = named[0] if named else f"an image processor of {model_type or 'no class'}"
        taken.left.append(f"{whose} of {file}, a class whose steps are not known here: {_OWN}")
    _take_size(taken, images, file, name.lower(), kind or _Kind(resample=_BILINEAR))
    _take_numbers(taken, images, file, name.lower())
    images.take("do_convert_rgb"), images.take("do_reduce_labels"), images.take("reduce_labels")
    flips = images.take("do_flip_channel_order", name.lower() == "mobilevit")
    taken.keys["imageColor"] = "BGR" if flips else "RGB"
    for switch in ("do_pad", "do_center_pad"):
        if not images.take(switch):
            continue
        taken.left.append(f"{switch} of {file}: {_OWN}")
    taken.left += images.leave(file, FACT, *_FACTS) + images.left(file)


def _take_sounds(taken: Taken, sounds: Fields, file: str) -> None:
    names = [str(sounds.take(name)) for name in _CLASSES if name in sounds]
    scaled = ", less their mean and divided by their deviation" if sounds.take("do_normalize") else ""
    taken.left.append(
        f"{', '.join(names) or 'the class'} of {file}: clients, or preprocess of a handler, send what it makes of a "
        f"sound of {sounds.take('sampling_rate')} numbers a second{scaled}"
    )
    taken.left += sounds.leave(file, FACT, *_FACTS) + sounds.left(file, "how clients, or a handler, prepare a sound")


def _take_numbers(taken: Taken, images: Fields, file: str, name: str) -> None:
    # Older files have no do_rescale: their classes always divide by 255.
    rescales, factor = images.take("do_rescale", True), images.take("rescale_factor", 1 / 255)
    if rescales:
        taken.keys["imageScale"] = factor
    # Pixels from -1 to 1: 1 is subtracted before the mean is.
    moved = [bool(images.take(field)) for field in ("offset", "rescale_offset")]
    shift = 1 if rescales and any(moved) else 0
    again = images.take("include_top", True) if name == "efficientnet" else False
    mean, std = images.take("image_mean"), images.take("image_std")
    if not images.take("do_normalize", name != "mobilevit"):
        mean, std = [0], [1]
        if again:
            taken.left.append(f"include_top of {file}, without do_normalize: set imageStd to image_std")
    elif mean is None or std is None:
        taken.left.append(f"mean and deviation, which are not in {file}: {_SAVE}; set imageMean and imageStd")
        return
    mean, std = _channels(mean), _channels(std)
    if again:
        # That class divides by the deviation twice.
        std = [value**2 for value in std]
    mean = [value + shift for value in mean]
    if any(mean) or set(std) != {1}:
        taken.keys |= {"imageMean": mean, "imageStd": std}


def _channels(value: Any) -> list[float]:
    return value if isinstance(value, list) else [value]


def _take_size(taken: Taken, images: Fields, file: str, name: str, kind: _Kind) -> None:
    crops, resizes = images.take("do_center_crop", kind.crops), images.take("do_resize", True)
    size, crop = images.take("size"), _pair(images.take("crop_size"))
    fraction, resample = images.take("crop_pct"), images.take("resample", kind.resample)
    edge, pair = _edge(size, kind.square), _pair(size, kind.square)
    if name == "convnext" and edge and edge >= _WARPED:
        pair, edge = (edge, edge), None
    elif name == "convnext" and edge and resizes:
        edge, crop, crops = int(edge / (fraction or 224 / 256)), (edge, edge), True
    elif name == "poolformer":
        edge = int((edge or (pair or (0, 0))[0]) / (fraction or 0.9))
    elif edge:
        edge = int(edge * kind.edge)
    if resizes and not (edge or pair):
        taken.left.append(f"the size {size} of {file}, to which images are scaled: {_OWN}")
    elif resizes:
        taken.keys |= {"imageShortestEdge": edge} if edge else {"imageResize": _text(pair)}
        taken.keys["imageResample"] = _RESAMPLE[resample] if resample in range(len(_RESAMPLE)) else "bilinear"
        if resample == _NEAREST:
            taken.left.append(
                f"resample nearest of {file}: Pillow chooses the pixels; torchvision, which transformers takes if it "
                "is installed, chooses others (docs/explanation/where-libraries-differ.md)"
            )
    if crops and crop:
        taken.keys["imageCrop"] = _text(crop)
    elif crops:
        taken.left.append(f"the crop of images, whose size {file} does not have: set imageCrop")


def _text(pair: tuple[int, int] | None) -> str:
    return ",".join(map(str, pair or ()))


def _pair(value: Any, square: bool = True) -> tuple[int, int] | None:
    """Return width and height of one number, of two with the height first, or of a mapping."""
    if isinstance(value, int):
        return (value, value) if square else None
    if isinstance(value, list) and len(value) == 2:
        return value[1], value[0]
    return (
        (value["width"], value["height"]) if isinstance(value, dict) and value.keys() == {"height", "width"} else None
    )


def _edge(value: Any, square: bool) -> int | None:
    """Return the pixels of the shorter edge; None if the value is no size."""
    if isinstance(value, int):
        return None if square else value
    return value["shortest_edge"] if isinstance(value, dict) and value.keys() == {"shortest_edge"} else None
