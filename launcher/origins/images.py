"""Images of Hugging Face: a `preprocessor_config.json`, of the present form or of the older feature extractors."""

from pathlib import Path
from typing import Any

from cluster_serving.launcher.origins.fields import FACT, Fields, read_fields
from cluster_serving.launcher.origins.taken import Taken

_FILE = "preprocessor_config.json"
_FACTS = ("image_processor_type", "feature_extractor_type", "processor_class", "_valid_processor_keys")
_SAVE = "AutoImageProcessor.from_pretrained(...).save_pretrained(...) of transformers writes a file that has it"
_BILINEAR = 2
_SCALED = (
    "the mean of pixels that the library takes where it makes images smaller: imageResize does not, so numbers differ, "
    "the more the larger the image; clients, or preprocess of a handler, may send images scaled with Pillow"
)


def take(taken: Taken, folder: Path) -> None:
    """Add the keys for images, and lines for what is not computed here; nothing without the file."""
    images = read_fields(folder / _FILE)
    if images is None or not {"image_mean", "size", "do_normalize", "do_resize"}.intersection(images):
        return
    _take_size(taken, images)
    _take_numbers(taken, images)
    images.take("do_convert_rgb")
    taken.keys["imageColor"] = "BGR" if images.take("do_flip_channel_order") else "RGB"
    taken.left += images.leave(_FILE, FACT, *_FACTS) + images.left(_FILE)


def _take_numbers(taken: Taken, images: Fields) -> None:
    # Older files have no do_rescale: their classes always divide by 255.
    rescales, factor = images.take("do_rescale", True), images.take("rescale_factor", 1 / 255)
    if rescales:
        taken.keys["imageScale"] = factor
    if images.take("offset"):
        taken.left.append(f"offset of {_FILE}, which moves the numbers to -1 to 1: set imageMean: [1]")
    mean, std = images.take("image_mean"), images.take("image_std")
    if not images.take("do_normalize", True):
        return
    if mean is None or std is None:
        taken.left.append(f"mean and deviation, which are not in {_FILE}: {_SAVE}; set imageMean and imageStd")
        return
    taken.keys |= {"imageMean": _channels(mean), "imageStd": _channels(std)}


def _channels(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _take_size(taken: Taken, images: Fields) -> None:
    size, crop = _size(images.take("size")), _size(images.take("crop_size"))
    crops, resizes = images.take("do_center_crop"), images.take("do_resize", True)
    fraction = images.take("crop_pct")
    resample = images.take("resample", _BILINEAR)
    if crops or fraction:
        taken.left.append("the crop of images: imageResize scales the whole image to its size")
    found = crop if crops and crop else size
    if not (resizes or crops):
        return
    if found is None:
        taken.left.append(f"the size of images, which {_FILE} does not have as height and width: set imageResize")
        return
    taken.keys["imageResize"] = f"{found[0]},{found[1]}"
    kind = "" if resample == _BILINEAR else f"resample {resample} of {_FILE}, and "
    taken.left.append(f"{kind}{_SCALED}")


def _size(value: Any) -> tuple[int, int] | None:
    """Return width and height: of one number, of two, or of a mapping."""
    if isinstance(value, int):
        return value, value
    if isinstance(value, list) and len(value) == 2:
        return value[0], value[1]
    if not isinstance(value, dict):
        return None
    if value.keys() >= {"height", "width"}:
        return value["width"], value["height"]
    side = value.get("shortest_edge") if value.keys() == {"shortest_edge"} else None
    return (side, side) if side else None
