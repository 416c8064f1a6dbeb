from __future__ import annotations

import resource
import struct
import time
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image as Pillow

from cluster_serving.job.kinds.image_input import check_size
from cluster_serving.job.kinds.images import decode, read_size
from cluster_serving.job.models import TensorSpec
from cluster_serving.job.options import ImageOptions
from cluster_serving.protocol.errors import InvalidInput, ModelError, RequestTooLarge

SUFFIXES = [".jpg", ".png", ".bmp", ".webp", ".tiff"]
HEIGHT, WIDTH = 48, 80


@pytest.fixture
def picture() -> np.ndarray:
    """An image that is smooth, so that it survives JPEG; blue rises downwards, green to the right, red is 50."""
    picture = np.full((HEIGHT, WIDTH, 3), 50, np.uint8)
    picture[:, :, 0] = np.linspace(0, 255, HEIGHT)[:, np.newaxis]
    picture[:, :, 1] = np.linspace(0, 255, WIDTH)
    return picture


def encode(suffix: str, picture: np.ndarray, *options: int) -> bytes:
    return cv2.imencode(suffix, picture, options)[1].tobytes()


def huge_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_image_becomes_float32_blue_green_red(suffix, picture):
    data = encode(suffix, picture)
    image = decode(data, ImageOptions(), "CHW")
    assert (image.dtype, image.shape) == (np.float32, (3, HEIGHT, WIDTH))
    np.testing.assert_allclose(image.transpose(1, 2, 0), picture, atol=12)
    np.testing.assert_array_equal(decode(data, ImageOptions(), "HWC"), image.transpose(1, 2, 0))


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_the_dtype_of_the_model_is_kept(picture, layout):
    data = encode(".png", picture)
    image = decode(data, ImageOptions(), layout, np.uint8)
    assert image.dtype == np.uint8
    np.testing.assert_array_equal(image, decode(data, ImageOptions(), layout))


def test_grey_and_transparent_images_get_three_channels(picture):
    grey = decode(encode(".png", picture[:, :, 0]), ImageOptions(), "CHW")
    np.testing.assert_array_equal(grey, np.stack([picture[:, :, 0]] * 3))
    transparent = cv2.cvtColor(picture, cv2.COLOR_BGR2BGRA)
    np.testing.assert_array_equal(decode(encode(".png", transparent), ImageOptions(), "HWC"), picture)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("suffix", [".png", ".tiff"])
def test_sixteen_bits_become_eight_in_every_layout(picture, suffix, layout):
    colour, gray = picture.astype(np.uint16) * 257, picture[:, :, 0].astype(np.uint16) * 257
    three = np.stack([picture[:, :, 0]] * 3, axis=2)
    for deep, expected in ((colour, picture), (gray, three)):
        image = decode(encode(suffix, deep), ImageOptions(), layout)
        np.testing.assert_array_equal(image if layout == "HWC" else image.transpose(1, 2, 0), expected)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("deep", [False, True])
def test_transparent_images_have_the_channels_asked_for(picture, layout, deep):
    transparent = np.dstack([picture, picture[:, :, 1]])
    data = encode(".png", transparent.astype(np.uint16) * 257 if deep else transparent)
    gray = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)[:, :, np.newaxis]
    for color, expected in (("BGR", picture), ("RGB", picture[:, :, ::-1]), ("GRAY", gray)):
        image = decode(data, ImageOptions(color=color), layout)
        # Decoders weigh the channels of a gray image in their own ways.
        tolerance = 2 if color == "GRAY" else 0
        np.testing.assert_allclose(
            image if layout == "HWC" else image.transpose(1, 2, 0), expected.astype("f4"), atol=tolerance
        )


def test_an_image_is_scaled_to_width_and_height(picture):
    image = decode(encode(".png", picture), ImageOptions(resize=(40, 24)), "HWC")
    np.testing.assert_array_equal(image, cv2.resize(picture, (40, 24)))


@pytest.mark.parametrize("resample", ["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"])
@pytest.mark.parametrize("color", ["BGR", "RGB", "GRAY"])
def test_an_image_is_scaled_as_by_pillow(picture, resample, color):
    options = ImageOptions(resize=(17, 11), resample=resample, color=color)
    image = decode(encode(".png", picture), options, "HWC", np.uint8)
    pixels = {"BGR": picture, "RGB": picture[:, :, ::-1], "GRAY": cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)}[color]
    expected = Pillow.fromarray(np.ascontiguousarray(pixels)).resize((17, 11), Pillow.Resampling[resample.upper()])
    # Decoders weigh the channels of a gray image in their own ways.
    np.testing.assert_allclose(np.squeeze(image).astype(int), np.asarray(expected), atol=1 if color == "GRAY" else 0)


def test_the_middle_of_an_image_is_cut_out_after_its_shorter_edge_is_scaled(picture):
    data = encode(".png", picture[:, :73])
    options = ImageOptions(shortest_edge=24, resample="bicubic", crop=(19, 20))
    # 24 * 73 / 48 = 36.5; (36 - 19) / 2 = 8.5
    whole = np.asarray(Pillow.fromarray(picture[:, :73].copy()).resize((36, 24), Pillow.Resampling.BICUBIC))
    np.testing.assert_array_equal(decode(data, options, "HWC"), whole[2:22, 8:27])
    np.testing.assert_array_equal(decode(data, ImageOptions(crop=(2, 4)), "HWC"), picture[22:26, 35:37])
    upright = decode(encode(".png", picture.transpose(1, 0, 2)), ImageOptions(shortest_edge=24), "CHW")
    assert upright.shape == (3, 40, 24)


def test_an_image_smaller_than_its_crop_is_refused(picture):
    data = encode(".png", picture)
    for options, size in (
        (ImageOptions(crop=(81, 48)), "80 x 48 pixels"),
        (ImageOptions(shortest_edge=24, crop=(24, 25)), "40 x 24 pixels when it is scaled"),
    ):
        with pytest.raises(InvalidInput, match=f"'photo' is an image of {size}; expected at least .*imageCrop"):
            decode(data, options, "CHW", name="photo")


def test_a_strip_that_would_become_huge_is_refused_before_it_is_decoded():
    with pytest.raises(RequestTooLarge, match="40000000 x 1 pixels, and 8960000000 x 224 when it is scaled"):
        decode(huge_png(40_000_000, 1), ImageOptions(shortest_edge=224), "CHW")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_size_is_read_from_the_header(suffix, picture):
    assert read_size(encode(suffix, picture)) == (WIDTH, HEIGHT)


def test_the_size_is_read_from_every_kind_of_header(picture):
    assert read_size(encode(".jpg", picture, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)) == (WIDTH, HEIGHT)
    assert read_size(encode(".webp", picture, cv2.IMWRITE_WEBP_QUALITY, 101)) == (WIDTH, HEIGHT)  # lossless
    assert read_size(encode(".webp", cv2.cvtColor(picture, cv2.COLOR_BGR2BGRA))) == (WIDTH, HEIGHT)
    bmp = encode(".bmp", picture)
    upside_down = bmp[:22] + struct.pack("<i", -HEIGHT) + bmp[26:]
    assert read_size(upside_down) == (WIDTH, HEIGHT)
    assert decode(upside_down, ImageOptions(), "HWC").shape == (HEIGHT, WIDTH, 3)


def test_a_thumbnail_in_the_metadata_is_not_taken_for_the_image(picture):
    data, thumbnail = encode(".jpg", picture), encode(".jpg", picture[:8, :8])
    metadata = b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail
    assert read_size(data[:2] + metadata + data[2:]) == (WIDTH, HEIGHT)


def test_a_tiff_of_the_other_byte_order_is_read():
    tags = [(256, 4, 4, 1), (257, 3, 3 << 16, 1), (258, 3, 8 << 16, 1), (259, 3, 1 << 16, 1), (262, 3, 1 << 16, 1)]
    tags += [(273, 4, 8, 1), (277, 3, 1 << 16, 1), (278, 3, 3 << 16, 1), (279, 4, 12, 1)]
    entries = b"".join(struct.pack(">HHII", tag, kind, count, value) for tag, kind, value, count in tags)
    data = b"MM\0*" + struct.pack(">I", 20) + bytes(range(12)) + struct.pack(">H", len(tags)) + entries + b"\0" * 4
    assert read_size(data) == (4, 3)
    assert decode(data, ImageOptions(), "HWC").shape == (3, 4, 3)


def test_a_png_that_claims_a_huge_chunk_costs_no_memory(picture):
    data = encode(".png", picture)
    at = data.index(b"IDAT") - 4
    claims = data[:at] + b"\xff\xff\xff\x07" + data[at + 4 :]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidInput, match="is damaged or cut off"):
        decode(claims, ImageOptions(), "CHW")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # KiB


@pytest.mark.parametrize("size", [(40_000, 40_000), (30_000, 30_000), (2**31 - 1, 1)])
def test_a_huge_image_is_refused_before_it_is_decoded(size):
    with pytest.raises(
        RequestTooLarge, match=rf"'photo' is an image of {size[0]} x {size[1]} pixels; at most 50000000"
    ):
        decode(huge_png(*size), ImageOptions(), "CHW", name="photo")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_limit_counts_pixels(suffix, picture):
    data = encode(suffix, picture)
    decode(data, ImageOptions(max_image_pixels=WIDTH * HEIGHT), "CHW")
    with pytest.raises(RequestTooLarge):
        decode(data, ImageOptions(max_image_pixels=WIDTH * HEIGHT - 1), "CHW")


def test_a_huge_tile_counts_as_well():
    entries = [(256, 4, 1, 64), (257, 4, 1, 64), (322, 4, 1, 16384), (323, 4, 1, 16384)]
    data = b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    with pytest.raises(RequestTooLarge):
        decode(data, ImageOptions(), "CHW")


def test_a_size_that_is_stated_twice_counts_in_full(picture):
    entries = [(256, 4, 1, 64), (256, 4, 1, 60_000), (257, 4, 1, 64), (257, 4, 1, 60_000)]
    data = b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    with pytest.raises(RequestTooLarge):
        decode(data, ImageOptions(), "CHW")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("part", [0.01, 0.1, 0.5, 0.9])
def test_a_cut_off_image_is_refused(suffix, part, picture):
    data = encode(suffix, picture)
    data = data[: int(len(data) * part)]
    with pytest.raises(
        InvalidInput, match=r"'photo' is .*expected a whole JPEG, PNG, BMP, WebP or TIFF file"
    ) as caught:
        decode(data, ImageOptions(), "CHW", name="photo")
    assert f"{len(data)} bytes" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"hello", b"GIF89a" + b"\0" * 100, b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"])
def test_bytes_that_are_no_image_are_refused(data):
    with pytest.raises(InvalidInput) as caught:
        decode(data, ImageOptions(), "CHW")
    assert repr(data[:8]) in str(caught.value)


@pytest.mark.parametrize(
    "filling", [b"\0", b"\xff", b"\xff\xd0", b"\xff\xe0\0\2", b"\xff\xe0\0\0", b"\xff\xd9", b"\xff\xda\0\2"]
)
def test_a_hostile_jpeg_header_costs_no_time(filling):
    data = b"\xff\xd8\xff" + filling * (32_000_000 // len(filling))
    start = time.process_time()
    with pytest.raises(InvalidInput):
        decode(data, ImageOptions(), "CHW")
    assert time.process_time() - start < 2


def test_a_photo_is_turned_upright(picture):
    data = encode(".jpg", picture)
    orientation = struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0)  # turn by 90 degrees
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + orientation + b"\0" * 4
    segment = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    assert decode(data[:2] + segment + data[2:], ImageOptions(), "HWC").shape == (WIDTH, HEIGHT, 3)


def test_images_are_normalized_as_declared(picture):
    data = encode(".png", picture)
    options = ImageOptions(color="RGB", scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    image = decode(data, options, "CHW")
    rgb = picture[:, :, ::-1].transpose(2, 0, 1).astype(np.float64) / 255
    mean, std = (np.array(values)[:, None, None] for values in (options.mean, options.std))
    assert image.dtype == np.float32
    np.testing.assert_allclose(image, (rgb - mean) / std, atol=1e-5)


def test_a_grey_image_has_one_channel_and_one_mean(picture):
    grey = decode(encode(".png", picture[:, :, 0]), ImageOptions(color="GRAY", mean=(10.0,)), "CHW")
    np.testing.assert_array_equal(grey, picture[np.newaxis, :, :, 0].astype(np.float32) - 10)


def test_integers_are_not_normalized(picture):
    with pytest.raises(InvalidInput, match="need a model that takes floats, not uint8"):
        decode(encode(".png", picture), ImageOptions(scale=0.5), "CHW", np.uint8)


@pytest.mark.parametrize(
    ("options", "shape", "told"),
    [
        ({"resize": (64, 48)}, (None, 3, 32, 24), 'imageResize makes images of 64 x 48 .*set imageResize: "24,32"'),
        ({"resize": (64, 64), "crop": (56, 56)}, (None, 32, 32, 3), "imageCrop makes images of 56 x 56 .*inputShapes"),
        ({"resize": (64, 48)}, (None, 3, 48, 64), ""),
        ({"resize": (64, 64), "crop": (32, 32)}, (None, 3, 32, 32), ""),
        ({"resize": (64, 48)}, (None, 3, None, None), ""),
        ({"shortest_edge": 64}, (None, 3, 32, 32), ""),
        # No image: so many channels have features.
        ({"resize": (64, 48)}, (None, 7, 32, 32), ""),
        ({"resize": (64, 48)}, (None, 3), ""),
        ({"resize": (64, 48)}, None, ""),
    ],
)
def test_a_size_of_images_that_the_model_never_takes_is_refused(options, shape, told):
    vector, image = TensorSpec("x", "float32", (None, 3)), TensorSpec("image", "float32", shape)
    if told:
        with pytest.raises(ModelError, match=told):
            check_size([vector, image], "CHW", ImageOptions(**options))
        other = TensorSpec("other", "float32", (None, 3, None, None))
        check_size([image, other], "CHW", ImageOptions(**options))
    else:
        check_size([vector, image], "CHW", ImageOptions(**options))
