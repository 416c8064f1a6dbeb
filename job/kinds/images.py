"""Images: decode an encoded image to the tensor that a model takes."""

import re
import struct

import cv2
import numpy as np
from numpy.typing import DTypeLike

from cluster_serving.job.kinds import scaling
from cluster_serving.job.models.base import Layout
from cluster_serving.job.options import ImageOptions
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import Array

FORMATS = "JPEG, PNG, BMP, WebP or TIFF"
"""Accepted formats. OpenCV reads more, but the size of an image in those is known only after decoding."""

_PNG = b"\x89PNG\r\n\x1a\n"
_MAX_PNG_CHUNKS = 1 << 16  # encoders make them of 8 KiB or more
_MAX_JPEG_SEGMENTS = 1000  # before the frame header; a large colour profile takes some 200
# Skips bytes that are no marker, and markers without a segment, as decoders do.
_JPEG_SEGMENT = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")
# Tag → axis: width and tile width, height and tile height; a decoder also holds a whole tile in memory.
_TIFF_SIZES = {256: 0, 322: 0, 257: 1, 323: 1}

_FLAGS = {"BGR": cv2.IMREAD_COLOR, "RGB": cv2.IMREAD_COLOR, "GRAY": cv2.IMREAD_GRAYSCALE}

# Slots are the unit of parallelism; OpenCV's own threads would use the cores of other slots.
cv2.setNumThreads(1)
# Errors of an image are answered to its sender, who must not be able to fill the log.
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


def decode(
    data: bytes, options: ImageOptions, layout: Layout, dtype: DTypeLike = np.float32, name: str = "image"
) -> Array:
    """Decode an image and turn it upright by its EXIF data; by default to blue, green, red from 0 to 255.

    Grey images get three equal channels, and transparency is dropped. The dtype uint8 costs no conversion. Messages
    contain the `name` of the input.

    Raises:
        RequestTooLarge: If the header announces more pixels than `options.max_image_pixels`, or they would be more when
            the image is scaled; nothing is decoded then.
        InvalidInput: If the bytes are not a whole image of one of `FORMATS`, the image is smaller than its crop, or
            integers cannot be normalized.
    """
    size = read_size(data)
    if size and size[0] * size[1] > options.max_image_pixels:
        raise RequestTooLarge(
            f"input {name!r} is an image of {size[0]} x {size[1]} pixels; "
            f"at most {options.max_image_pixels} are accepted"
        )
    if size:
        scaling.check(size, options, name)
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), _FLAGS[options.color]) if size and _is_whole(data) else None
    except cv2.error:
        image = None
    if image is None:
        problem = "is damaged or cut off" if size else "is not an image that can be read"
        raise InvalidInput(
            f"input {name!r} {problem}: {len(data)} bytes that begin with {data[:8]!r}; expected a whole {FORMATS} file"
        )
    image = scaling.scaled(image, options, name)
    if options.color == "RGB":
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    elif options.color == "GRAY":
        image = image[:, :, np.newaxis]
    if options.normalizes:
        if np.dtype(dtype).kind != "f":
            raise InvalidInput(
                f"input {name!r} is an image, but imageScale, imageMean and imageStd need a model that takes floats, "
                f"not {np.dtype(dtype)}"
            )
        std = np.array(options.std, np.float32)
        image = image * (options.scale / std) - np.array(options.mean, np.float32) / std
    return np.asarray(image.transpose(2, 0, 1) if layout == "CHW" else image, dtype)


def read_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height in an image's header (before EXIF orientation); None if it is none of `FORMATS`."""
    try:
        if data.startswith(_PNG) and data[12:16] == b"IHDR":
            width, height = struct.unpack_from(">II", data, 16)
            return width, height
        if data.startswith(b"\xff\xd8\xff"):
            return _jpeg_size(data)
        if data.startswith(b"BM"):
            return _bmp_size(data)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _webp_size(data)
        if data[:4] in (b"II*\0", b"MM\0*"):
            return _tiff_size(data, "<" if data[:2] == b"II" else ">")
    except (struct.error, IndexError):
        pass  # the header is cut off
    return None


def _is_whole(data: bytes) -> bool:
    """Return False for a PNG with a chunk longer than the file: OpenCV allocates up to 4 GiB for it unread."""
    if not data.startswith(_PNG):
        return True
    position = len(_PNG)
    for _ in range(_MAX_PNG_CHUNKS):
        if position + 8 > len(data):
            return False
        length, kind = struct.unpack_from(">I4s", data, position)
        position += 12 + length
        if kind == b"IEND":
            return True
    return False


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    position = 2
    for _ in range(_MAX_JPEG_SEGMENTS):
        segment = _JPEG_SEGMENT.search(data, position)
        if not segment:
            return None
        marker, position = segment[1][0], segment.end()
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a frame header, of any coding process
            height, width = struct.unpack_from(">HH", data, position + 3)
            return width, height
        position += struct.unpack_from(">H", data, position)[0]
    return None


def _bmp_size(data: bytes) -> tuple[int, int]:
    layout = "<HH" if struct.unpack_from("<I", data, 14)[0] == 12 else "<ii"
    width, height = struct.unpack_from(layout, data, 18)
    return abs(width), abs(height)  # a negative height means rows from the top


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _tiff_size(data: bytes, order: str) -> tuple[int, int] | None:
    start = struct.unpack_from(order + "I", data, 4)[0]
    size = [0, 0]
    for index in range(struct.unpack_from(order + "H", data, start)[0]):
        entry = start + 2 + 12 * index
        tag, kind = struct.unpack_from(order + "HH", data, entry)
        if tag in _TIFF_SIZES:
            if kind not in (3, 4):  # SHORT and LONG
                return None
            value = struct.unpack_from(order + ("H" if kind == 3 else "I"), data, entry + 8)[0]
            # Of a repeated tag the largest value counts, whichever the decoder uses.
            size[_TIFF_SIZES[tag]] = max(size[_TIFF_SIZES[tag]], value)
    return (size[0], size[1]) if all(size) else None
