"""Tensors of other frameworks as inputs."""

import subprocess
import sys

import cv2
import numpy as np
import pytest
import torch
from PIL import Image as PilImage

from cluster_serving.client.sending.convert import to_input
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Image
from tests.support.lazy import Lazy

tf = Lazy("tensorflow")

NUMBERS = np.array([[1.5, -2.0], [0.25, 3.0]], "f4")
TENSOR = torch.from_numpy(NUMBERS)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (TENSOR, "f4"),
        (torch.nn.Parameter(TENSOR), "f4"),
        (TENSOR.clone().requires_grad_() * 1, "f4"),
        (TENSOR.T.contiguous().T, "f4"),
        (TENSOR.to_sparse(), "f4"),
        (TENSOR.bfloat16(), "f4"),
        (TENSOR.half(), "f2"),
        (torch.complex(TENSOR, -TENSOR).conj().real, "f4"),
        ([TENSOR[0], torch.nn.Parameter(TENSOR[1])], "f4"),
    ],
)
def test_tensors_arrive_as_they_are(value, dtype):
    converted = to_input("x", value)
    assert type(converted) is np.ndarray
    assert converted.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(converted, NUMBERS)


def test_tensors_of_tensorflow_arrive_as_they_are():
    for value in (tf.constant(NUMBERS), tf.Variable(NUMBERS), tf.constant(NUMBERS, tf.bfloat16)):
        test_tensors_arrive_as_they_are(value, "f4")
    assert to_input("x", tf.constant([["one", "zwölf"]])).tolist() == [["one", "zwölf"]]
    with pytest.raises(InvalidInput, match=r"'x' .* RaggedTensor"):
        to_input("x", tf.ragged.constant([[1], [2, 3]]))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            torch.zeros(2, device="meta"),
            r"'x' \(Tensor, dtype torch.float32, shape torch.Size\(\[2\]\)\) cannot be read as an",
        ),
        ([torch.zeros(1), torch.zeros(2)], r"'x' \(list of 2\) is not a tensor: .* inhomogeneous"),
    ],
)
def test_what_is_no_array_is_refused_by_name(value, message):
    with pytest.raises(InvalidInput, match=message):
        to_input("x", value)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_a_pil_image_is_sent_as_an_image(mode):
    pixels = np.random.default_rng(1).integers(0, 256, (5, 4, len(mode)), np.uint8)
    sent = to_input("x", PilImage.fromarray(pixels.squeeze(), mode))
    assert isinstance(sent, Image)
    decoded = cv2.imdecode(np.frombuffer(sent.data, np.uint8), cv2.IMREAD_UNCHANGED)
    if mode != "L":
        decoded = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB if mode == "RGB" else cv2.COLOR_BGRA2RGBA)
    np.testing.assert_array_equal(decoded, pixels.squeeze())
    with pytest.raises(InvalidInput, match="cannot be encoded as PNG: cannot write mode CMYK"):
        to_input("x", PilImage.new("CMYK", (2, 2)))


def test_the_client_imports_none_of_them():
    program = "import cluster_serving.client, sys; print({'torch', 'tensorflow', 'PIL', 'pandas'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"
