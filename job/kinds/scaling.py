"""Size of images: scale a decoded image, as OpenCV or as Pillow does, and cut out its middle."""

import cv2
import numpy as np

from cluster_serving.job.options import ImageOptions
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import Array


def check(size: tuple[int, int], options: ImageOptions, name: str) -> None:
    """Check an image of (width, height) before it is decoded: a long strip may become huge.

    Raises:
        RequestTooLarge: If it would have more than `options.max_image_pixels` when it is scaled.
    """
    width, height = _target(*size, options) or size
    if width * height > options.max_image_pixels:
        raise RequestTooLarge(
            f"input {name!r} is an image of {size[0]} x {size[1]} pixels, and {width} x {height} when it is scaled "
            f"(imageShortestEdge); at most {options.max_image_pixels} are accepted"
        )


def scaled(image: Array, options: ImageOptions, name: str) -> Array:
    """Scale an image (height, width, channels), or grey (height, width), and cut out the middle; uint8 as before.

    Pillow takes the mean of pixels where it makes an image smaller, and OpenCV does not. The middle is that of
    transformers: an odd pixel is cut off at the right and below.

    Raises:
        InvalidInput: If the image is smaller than `options.crop`; the message names the input.
    """
    target = _target(image.shape[1], image.shape[0], options)
    if target and options.resample:
        from PIL import Image

        kind = Image.Resampling[options.resample.upper()]
        image = np.asarray(Image.fromarray(image).resize(target, kind))
    elif target:
        image = cv2.resize(image, target, interpolation=cv2.INTER_LINEAR)
    if not options.crop:
        return image
    (height, width), (crop_width, crop_height) = image.shape[:2], options.crop
    if height < crop_height or width < crop_width:
        when = " when it is scaled" if target else ""
        raise InvalidInput(
            f"input {name!r} is an image of {width} x {height} pixels{when}; expected at least "
            f"{crop_width} x {crop_height} (imageCrop)"
        )
    top, left = (height - crop_height) // 2, (width - crop_width) // 2
    return image[top : top + crop_height, left : left + crop_width]


def _target(width: int, height: int, options: ImageOptions) -> tuple[int, int] | None:
    """Return width and height to scale to; None to keep them. The longer edge is rounded down, as by torchvision."""
    edge = options.shortest_edge
    if not edge:
        return options.resize
    return (edge, edge * height // width) if width <= height else (edge * width // height, edge)
