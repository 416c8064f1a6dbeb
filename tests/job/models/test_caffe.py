from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from tests.support.payloads import writers

RNG = np.random.default_rng(0)
W, B = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32), RNG.normal(size=4).astype(np.float32)
SHAPES = [
    'input: "image" input_shape { dim: 1 dim: 3 dim: 8 dim: 8 }',
    'name: "net"  # old\ninput: "image"\ninput_dim: 1\ninput_dim: 3\ninput_dim: 8\ninput_dim: 8',
    """name: "a" 'b', input: "image"; state < phase: TEST level: -1 > input_shape < dim: [1, 3, 8, 8] >""",
    "layer { name: 'image' type: 'Input' top: 'image' input_param { shape: { dim: 1 dim: 3 dim: 8 dim: 8 } } }",
]


def load(folder, **options):
    return load_model(ModelOptions(str(folder), **options))


def save(folder, head=SHAPES[0], weights=None):
    text = writers.caffe_layer("Convolution", "image", "z", "convolution_param { num_output: 4 kernel_size: 3 }")
    text += writers.caffe_layer("ReLU", "z", "y")
    writers.save_caffe(folder, f"{head}\n{text}", {"z": ("Convolution", [W, B])} if weights is None else weights)


@pytest.mark.parametrize("head", SHAPES)
def test_images_are_computed_for_any_batch(tmp_path, head):
    save(tmp_path, head)
    model = load(tmp_path)
    assert list(map(str, model.inputs)) == ["image: float32[?, 3, 8, 8]"]
    assert list(map(str, model.outputs)) == ["y: float32[...]"]
    for batch in (3, 1, 32):
        x = RNG.random((batch, 3, 8, 8), np.float32)
        expected = torch.conv2d(torch.from_numpy(x), torch.from_numpy(W), torch.from_numpy(B)).relu().numpy()
        np.testing.assert_allclose(model.predict([x])[0], expected, rtol=1e-4, atol=1e-5)


def test_the_options_may_name_inner_layers(tmp_path):
    save(tmp_path)
    inner, last = load(tmp_path, outputs=("z", "y")).predict([np.ones((2, 3, 8, 8), np.float32)])
    np.testing.assert_array_equal(np.maximum(inner, 0), last)


def test_the_number_of_threads_is_set_for_the_process(tmp_path):
    save(tmp_path)
    load(tmp_path, thread_per_model=2)
    assert cv2.getNumThreads() == 2
    load(tmp_path, thread_per_model=1)
    assert cv2.getNumThreads() == 1


def test_layers_without_weights_are_refused(tmp_path):
    save(tmp_path, weights={"other": ("Convolution", [W, B])})
    with pytest.raises(ModelError, match=r"net\.caffemodel has no weights for the layer 'z' of .*net\.prototxt"):
        load(tmp_path)


def test_a_network_for_training_is_refused(tmp_path):
    save(tmp_path, 'layer { name: "data" type: "Data" top: "image" }')
    with pytest.raises(ModelError, match=r"has no input: serve the network for deployment \(deploy\.prototxt\)"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["{", "a {", "a: }", "}", "a: \x00\x01 {{", '"'])
def test_what_is_no_text_format_is_refused(tmp_path, text):
    save(tmp_path)
    (tmp_path / "net.prototxt").write_text(text)
    with pytest.raises(ModelError, match=r"net\.prototxt is not a Caffe network"):
        load(tmp_path)
