"""A model of each server is taken over, and answers as its engine does."""

import json
import shutil
import zipfile

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from cluster_serving.launcher import origins
from cluster_serving.launcher.errors import LaunchError
from tests.support.fixtures.tabular import answers
from tests.support.lazy import Lazy
from tests.support.payloads import foreign, model_zoo, tables, texts

skops_io = Lazy("skops.io")

X = tables.iris()[0][:20].astype("f4")


def test_torchserve(taking, tmp_path):
    said, keys = taking.take(foreign.save_torchserve(tmp_path))
    assert keys == {
        "jobName": "iris",
        "modelParallelism": 1,
        "maxBatchSize": 16,
        "batchTimeout": 20,
        "inferenceTimeout": 60,
    }
    # The handler is neither run nor copied.
    assert taking.files() == ["model.pt"]
    assert "left  the handler flowers.py:handle, whose code is not copied" in said
    (found,) = answers(taking.model, X, input_shapes=((4,),)).values()
    np.testing.assert_allclose(found, foreign.probabilities(X), atol=1e-5)


@pytest.mark.parametrize(("kind", "inside"), [("zip", "."), ("gztar", "iris"), ("tar", "iris")])
def test_a_folder_may_be_packed(taking, tmp_path, kind, inside):
    with zipfile.ZipFile(foreign.save_torchserve(tmp_path)) as packed:
        packed.extractall(tmp_path / "packed" / inside)
    archive = shutil.make_archive(str(tmp_path / "iris"), kind, tmp_path / "packed")
    _, keys = taking.take(archive)
    assert keys["jobName"] == "iris"
    assert taking.files() == ["model.pt"]


def test_a_damaged_archive_is_refused(taking, tmp_path):
    (path := tmp_path / "a.tar.gz").write_bytes(b"none")
    with pytest.raises(LaunchError, match=r"a\.tar\.gz cannot be unpacked"), origins.opened(path):
        pass


def test_torchserve_with_a_handler_for_images(taking, tmp_path):
    script = foreign.save_flowers_script(tmp_path)
    names = json.dumps({"0": ["n1", "tench"], "1": ["n2", "gold\nfish"], "2": ["n3", "shark"]})
    files = {"model.pt": script, "index_to_name.json": names}
    named = {"serializedFile": "model.pt", "handler": "image_classifier", "requirementsFile": "requirements.txt"}
    path = foreign.archive(tmp_path / "a b.mar", files | {"requirements.txt": "torchvision\n"}, **named)
    said, keys = taking.take(path)
    assert keys["jobName"] == "a_b"
    assert (
        keys["imageShortestEdge"] == 256
        and keys["imageCrop"] == "224,224"
        and keys["imageColor"] == "RGB"
        and keys["inputShapes"] == [[3, 224, 224]]
    )
    assert keys["imageScale"] == 1 / 255
    assert keys["postProcessing"] == "softmax | topN(3) | labels(labels.txt)"
    assert (taking.model / "labels.txt").read_text() == "tench\ngold fish\nshark\n"
    assert "left  how image_classifier rounds the place of its crop" in said and "left  requirements.txt" in said


def test_a_folder_as_torch_model_archiver_leaves_it_without_an_archive(taking, tmp_path):
    foreign.save_flowers_script(tmp_path / "iris")
    (tmp_path / "iris" / "MAR-INF").mkdir()
    manifest = {"model": {"modelName": "iris", "serializedFile": "model.pt", "handler": "base_handler"}}
    (tmp_path / "iris" / "MAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest))
    taking.take(tmp_path / "iris")
    assert taking.files() == ["model.pt"]


def test_triton(taking, tmp_path):
    model = foreign.save_triton(tmp_path)
    # The repository of one model, too.
    said, keys = taking.take(model.parent)
    assert keys == {"jobName": "iris", "maxBatchSize": 16, "batchTimeout": 5, "modelParallelism": 1}
    assert taking.files() == ["1/model.onnx", "2/model.onnx"]
    assert "left  optimization of config.pbtxt: the engine optimizes by itself" in said
    found = answers(taking.model / "2", X)["probabilities"]
    np.testing.assert_allclose(found, foreign.probabilities(X), atol=1e-5)


def test_triton_with_torchscript_on_gpus_and_a_queue(taking, tmp_path):
    model = tmp_path / "flowers"
    foreign.save_flowers_script(model / "1")
    (model / "config.pbtxt").write_text(
        'backend: "pytorch"\nmax_batch_size: 8\n'
        'input [{name: "INPUT__0" data_type: TYPE_FP32 dims: [4]}]\n'
        'output [{name: "OUTPUT__0" data_type: TYPE_FP32 dims: [3] label_filename: "labels.txt"}]\n'
        "instance_group [{count: 2, kind: KIND_GPU, gpus: [0, 1]}]\n"
        "dynamic_batching {preferred_batch_size: [4, 8], preserve_ordering: true, default_queue_policy {"
        "max_queue_size: 100, default_timeout_microseconds: 2500000}}\n"
        "version_policy: {specific {versions: [1]}}\n"
    )
    said, keys = taking.take(model)
    assert keys == {
        "jobName": "flowers",
        "maxBatchSize": 8,
        "maxQueueLength": 100,
        "requestDeadline": 2500,
        "device": "cuda:0,cuda:1",
        "modelParallelism": 4,
        "inputShapes": [[4]],
        "modelVersion": 1,
    }
    assert "left  dynamic_batching.preserve_ordering" in said
    assert "left  label_filename labels.txt of config.pbtxt: copy it beside the model, as" in said
    (found,) = answers(taking.model / "1", X, input_shapes=((4,),)).values()
    np.testing.assert_allclose(found, foreign.probabilities(X), atol=1e-5)


def test_triton_with_a_saved_model_and_without_a_configuration(taking, tmp_path):
    foreign.save_flowers_saved_model(tmp_path / "flowers" / "3" / "model.savedmodel")
    _, keys = taking.take(tmp_path / "flowers")
    assert keys == {"jobName": "flowers"}
    assert "3/saved_model.pb" in taking.files() and "3/variables/variables.index" in taking.files()
    found = answers(taking.model / "3", X)["probabilities"]
    np.testing.assert_allclose(found, foreign.probabilities(X), atol=1e-5)


def test_tensorflow_serving(taking, tmp_path):
    said, keys = taking.take(foreign.save_tensorflow_serving(tmp_path))
    assert keys == {"jobName": "iris", "watchModel": True}
    assert "set   watchModel: true" in said
    assert "1/saved_model.pb" in taking.files() and not any("extra" in name for name in taking.files())
    assert "left  the options of tensorflow_model_server" in said and "left  the warm-up requests" in said
    found = answers(taking.model / "1", X)["probabilities"]
    np.testing.assert_allclose(found, foreign.probabilities(X), atol=1e-5)


def save_skops(folder):
    skops_io.dump(LogisticRegression(max_iter=500).fit(*tables.iris()), folder / "model.skops")


def test_mlflow(taking, tmp_path):
    said, keys = taking.take(foreign.save_mlflow(tmp_path))
    assert keys == {"jobName": "iris"}
    assert taking.files() == ["model.ubj"]
    assert "left  the signature" in said and "left  requirements.txt" in said
    found = answers(taking.model, tables.named(X))["probabilities"]
    np.testing.assert_allclose(found, foreign.flowers_booster().predict_proba(X), rtol=1e-5)


@pytest.mark.parametrize(
    ("flavors", "save", "file"),
    [
        (
            "sklearn: {pickled_model: model.skops, serialization_format: skops, sklearn_version: 1.9.1}",
            save_skops,
            "model.skops",
        ),
        ("onnx: {data: model.onnx, onnx_version: 1.21.0}", foreign.save_flowers_onnx, "model.onnx"),
        (
            "pytorch: {model_data: data, pytorch_version: 2.13.0}",
            lambda folder: foreign.save_flowers_script(folder / "data").rename(folder / "data" / "model.pth"),
            "model.pt",
        ),
        (
            "pytorch: {model_data: data, pytorch_version: 2.13.0, serialization_format: pt2}",
            foreign.save_flowers_exported,
            "model.pt2",
        ),
        (
            "tensorflow: {data: data, model_type: keras, keras_version: 3.15.1}",
            lambda folder: model_zoo.save_keras_digits(folder / "data"),
            "model.keras",
        ),
    ],
)
def test_other_flavors_of_mlflow(taking, tmp_path, flavors, save, file):
    folder = foreign.mlflow(tmp_path / "flowers", f"flavors:\n  {flavors}\n")
    save(folder)
    taking.take(folder)
    assert taking.files() == [file]
    if file == "model.keras":
        x = model_zoo.digits_data()[0][:9]
        found, expected = answers(taking.model, x), model_zoo.digits_mlp(x)
    else:
        found, expected = answers(taking.model, X, input_shapes=((4,),)), foreign.probabilities(X)
    np.testing.assert_allclose([*found.values()][-1], expected, atol=1e-4)


def test_hugging_face(taking, tmp_path):
    said, keys = taking.take(foreign.save_hugging_face(tmp_path))
    assert keys == {"jobName": "reader", "pooling": "mean", "normalize": True, "maxTokens": 16}
    assert taking.files() == ["model.onnx", "tokenizer.json", "tokenizer_config.json"]
    found = answers(taking.model, [{"text": np.array("the cat sat", object)}], pooling="mean", normalize=True)
    mean = texts.tokens("the cat sat")[0].mean(axis=0)
    np.testing.assert_allclose(found["embedding"][0], mean / np.linalg.norm(mean), atol=1e-5)
    assert "Look through it, then run cluster-serving-start" in said


def test_hugging_face_with_classes_and_images(taking, tmp_path):
    folder = tmp_path / "vit"
    foreign.save_flowers_onnx(folder)
    (folder / "model_int8.onnx").write_bytes(b"other")
    (folder / "config.json").write_text(
        json.dumps({"architectures": ["ViTForImageClassification"], "id2label": {"0": "cat", "1": "dog", "2": "owl"}})
    )
    (folder / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "size": {"height": 224, "width": 192},
                "image_processor_type": "ViTImageProcessor",
                "do_rescale": True,
                "rescale_factor": 0.5,
                "do_normalize": True,
                "image_mean": [0.1, 0.2, 0.3],
                "image_std": [0.5, 0.5, 0.5],
            }
        )
    )
    said, keys = taking.take(folder)
    assert keys == {
        "jobName": "vit",
        "imageColor": "RGB",
        "imageResize": "192,224",
        "imageResample": "bilinear",
        "imageScale": 0.5,
        "imageMean": [0.1, 0.2, 0.3],
        "imageStd": [0.5, 0.5, 0.5],
        "postProcessing": "softmax | topN(3) | labels(labels.txt)",
    }
    assert taking.files() == ["labels.txt", "model.onnx"]
    assert "left  model_int8.onnx" in said


def test_hugging_face_as_openvino(taking, tmp_path):
    folder = tmp_path / "reader"
    model_zoo.save_openvino_product(folder, 2.0)
    for file in list(folder.iterdir()):
        file.rename(folder / f"openvino_{file.name}")
    (folder / "config.json").write_text("{}")
    (folder / "vocab.txt").write_text("a\n")
    said, _ = taking.take(folder)
    assert taking.files() == ["openvino_model.bin", "openvino_model.xml"]
    assert "left  the tokenizer" in said
    (found,) = answers(taking.model, X).values()
    np.testing.assert_allclose(found, X * 2, rtol=0.02)
