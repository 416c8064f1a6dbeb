"""An input of a model as images have to be for it: size, order of the axes, dtype."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cluster_serving.job.input_kind import InputKind
from cluster_serving.job.input_rule import InputRule
from cluster_serving.job.kinds import images
from cluster_serving.job.models.base import Layout
from cluster_serving.job.options import ImageOptions
from cluster_serving.protocol.encryption import images as encryption
from cluster_serving.protocol.errors import InvalidInput, ModelError
from cluster_serving.protocol.inputs import Array, Image
from cluster_serving.protocol.slots import TensorSpec, fits, type_text

_MANY_PIXELS = 1 << 17
"""Pixels of an image that takes longer to decode (0.6 ms) than to hand over to another thread and back (0.2 ms)."""


class ImageFiles(InputKind):
    """Image files, which are decoded, and decrypted before if that is configured."""

    type = Image

    def reader(
        self, rule: InputRule, layout: Layout, image: ImageOptions, keeps_bytes: bool
    ) -> Callable[[str, Image], Array]:
        """See `InputKind.reader`."""
        return ImageInput(rule, layout, image, keeps_bytes).read

    def prepare(self, image: ImageOptions) -> None:
        """See `InputKind.prepare`: import what decrypts."""
        if image.record_key is not None:
            encryption.prepare(image.record_key)

    def check(self, inputs: Sequence[TensorSpec], layout: Layout, image: ImageOptions) -> None:
        """See `InputKind.check`."""
        check_size(inputs, layout, image)

    def spec(self, name: str, image: ImageOptions) -> TensorSpec:
        """See `InputKind.spec`: the pixels."""
        return TensorSpec(name, "uint8", (None, None, None, 1 if image.color == "GRAY" else 3))

    def is_slow(self, value: Image) -> bool:
        """See `InputKind.is_slow`: an image of many pixels, or one that does not tell how many it has."""
        size = images.read_size(value.data)
        return size is None or math.prod(size) >= _MANY_PIXELS


class ImageInput:
    """Decodes the images of one input of a model. See `Preprocessor` for the arguments."""

    def __init__(self, rule: InputRule, layout: Layout, options: ImageOptions, keeps_bytes: bool) -> None:
        self._rule = rule
        self._shape = rule.record_shape
        self._dtype = rule.spec.numpy_dtype
        self._is_text = rule.spec.dtype == "str"
        self._options = options
        self._layout: Layout = options.layout or _layout_of(self._shape) or layout
        self._keeps_bytes = keeps_bytes and not options.normalizes

    def read(self, name: str, value: Image) -> Array:
        """Return the pixels of an image, with a batch dimension if records have one; see `decoded`."""
        array = self.decoded(name, value)
        return array[np.newaxis] if self._rule.batched else array

    def decoded(self, name: str, value: Image) -> Array:
        """Decode an image, after decryption if that is configured.

        Raises:
            InvalidInput: If the model takes no image here, or one of another size; the message names the input.
            RequestTooLarge: If the image has too many pixels.
        """
        dtype = self._dtype or (None if self._is_text else np.dtype(np.float32))
        expected = (None, None, None) if self._shape is None else self._shape
        if dtype is None or not np.can_cast(np.uint8, dtype) or len(expected) != 3:
            raise InvalidInput(f"input {name!r} is an image, but the model expects {self._rule}")
        if self._options.record_key is not None:
            value = encryption.decrypt(value, self._options.record_key, name)
        size = None if self._options.changes_size else images.read_size(value.data)
        if size and math.prod(size) <= self._options.max_image_pixels:
            # Refuse a wrong size before decoding. Turned upright, width and height of the image may be swapped.
            shapes = [self._shape_of(*size), self._shape_of(*size[::-1])]
            if not any(fits(shape, expected) for shape in shapes):
                raise self._wrong_size(name, dtype, shapes[0], expected)
        # Integers become the model's dtype when they are merged into a batch, where they are copied anyway.
        kept = np.dtype(np.uint8) if self._keeps_bytes and self._dtype is not None else dtype
        image = images.decode(value.data, self._options, self._layout, kept, name)
        if not fits(image.shape, expected):
            raise self._wrong_size(name, dtype, image.shape, expected)
        return image

    def _shape_of(self, width: int, height: int) -> tuple[int, ...]:
        channels = 1 if self._options.color == "GRAY" else 3
        return (channels, height, width) if self._layout == "CHW" else (height, width, channels)

    def _wrong_size(
        self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], expected: tuple[int | None, ...]
    ) -> InvalidInput:
        sides = slice(1, None) if self._layout == "CHW" else slice(None, 2)
        height, width = shape[sides]
        scalable = not fits((height, width), expected[sides])
        advice = '; imageResize: "width,height" in config.yaml scales images' if scalable else ""
        return InvalidInput(
            f"input {name!r} is an image of {width} x {height} pixels ({type_text(dtype.name, shape)}), "
            f"but the model expects {self._rule}{advice}"
        )


def check_size(specs: Sequence[TensorSpec], layout: Layout, options: ImageOptions) -> None:
    """Refuse a size of images that no input of the model takes.

    Raises:
        ModelError: If images of the size of `imageCrop` or `imageResize` fit none of the inputs that may be images.
    """
    size = options.crop or options.resize
    if size is None:
        return
    key = "imageCrop" if options.crop else "imageResize"
    expected = []
    for spec in specs:
        shape = spec.record_shape
        if spec.dtype == "str" or shape is None or len(shape) != 3:
            continue
        is_first = (options.layout or _layout_of(shape) or layout) == "CHW"
        channels, sides = (shape[0], shape[1:]) if is_first else (shape[2], shape[:2])
        if channels not in (None, 1, 3):
            continue
        if fits(size[::-1], sides):
            return
        expected.append((spec, sides))
    if expected:
        spec, (height, width) = expected[0]
        needed = f'set {key}: "{width},{height}"' if width and height else f"correct {key}"
        raise ModelError(
            f"{key} makes images of {size[0]} x {size[1]} pixels, but the model expects {spec}; {needed}, or correct "
            "inputShapes if it tells the shape"
        )


def _layout_of(shape: tuple[int | None, ...] | None) -> Layout | None:
    """Return the order of an image's axes by the position of the three channels; None if it is not clear."""
    if shape is None or len(shape) != 3 or (shape[0] == 3) == (shape[2] == 3):
        return None
    return "CHW" if shape[0] == 3 else "HWC"
