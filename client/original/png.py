"""PNG encoding without an imaging library, to keep the client light."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array, Image

# Number of channels → colour type of PNG, and PNG's order of OpenCV's channels.
_CHANNELS = {1: (0, [0]), 3: (2, [2, 1, 0]), 4: (6, [2, 1, 0, 3])}


def encode_png(name: str, pixels: Array) -> Image:
    """Encode pixels as `cv2.imread` gives them.

    Args:
        name: Name of the input, for the message.
        pixels: Grey (h, w), BGR (h, w, 3) or BGRA (h, w, 4); numbers from 0 to 255, which are rounded.

    Raises:
        InvalidInput: If the array is no image.
    """
    planes = pixels[..., np.newaxis] if pixels.ndim == 2 else pixels
    if planes.ndim != 3 or planes.shape[2] not in _CHANNELS or not planes.size or planes.dtype.kind not in "biuf":
        raise InvalidInput(
            f"input {name!r} is {pixels.dtype} of shape {list(pixels.shape)}; expected an image (height, width, 3)"
        )
    height, width, channels = planes.shape
    colour_type, order = _CHANNELS[channels]
    rows = np.clip(np.rint(planes[..., order]), 0, 255).astype("u1").reshape(height, -1)
    # Every row begins with the number of its filter: 0 for none.
    raw = np.concatenate([np.zeros((height, 1), "u1"), rows], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 1)), (b"IEND", b""))
    return Image(b"\x89PNG\r\n\x1a\n" + b"".join(_framed(kind, data) for kind, data in chunks))


def _framed(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
