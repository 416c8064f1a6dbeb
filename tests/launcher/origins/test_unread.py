"""Files and fields of other servers that are rarer: each one is used, or named with the way out."""

import json

import pytest

from cluster_serving.launcher import origins
from cluster_serving.launcher.errors import LaunchError
from tests.support.payloads import foreign


def hugging_face(folder, **files):
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"graph")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return origins.read(folder)


def classifier(**config):
    return {"architectures": ["BertForSequenceClassification"]} | config


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"id2label": {"0": "LABEL_0"}}, {"postProcessing": "sigmoid"}),
        ({"id2label": {"0": "LABEL_0"}, "problem_type": "regression"}, {}),
        (
            {"id2label": {"0": "LABEL_0"}, "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
            {"tokenizer": "pair"},
        ),
        (
            {
                "id2label": {"0": "LABEL_0"},
                "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid", "version": "4.1.0"},
            },
            {"postProcessing": "sigmoid", "tokenizer": "pair"},
        ),
        (
            {"id2label": {"0": "a", "1": "b"}, "problem_type": "multi_label_classification"},
            {"postProcessing": "sigmoid | topN(2) | labels(labels.txt)"},
        ),
    ],
)
def test_logits_become_what_the_library_returns(tmp_path, config, keys):
    taken = hugging_face(tmp_path / "rank", config=classifier(**config))
    assert taken.keys == {"jobName": "rank"} | keys


@pytest.mark.parametrize(
    ("name", "images", "keys"),
    [
        ("ViTFeatureExtractor", {"size": 224, "resample": 2}, "resize 224,224 bilinear"),
        ("ViTImageProcessor", {"size": {"height": 9, "width": 8}, "resample": 1}, "resize 8,9 lanczos"),
        ("CLIPFeatureExtractor", {"size": 224, "crop_size": 200}, "edge 224 bicubic 200,200"),
        (
            "BeitFeatureExtractor",
            {"size": 256, "crop_size": 224, "do_center_crop": True},
            "resize 256,256 bicubic 224,224",
        ),
        (
            "BitImageProcessorFast",
            {"size": {"shortest_edge": 256}, "crop_size": {"height": 2, "width": 4}},
            "edge 256 bicubic 4,2",
        ),
        ("MobileNetV1ImageProcessor", {"size": 256, "do_center_crop": False}, "edge 256 bilinear"),
        ("LevitImageProcessor", {"size": {"shortest_edge": 224}, "crop_size": 224}, "edge 256 bicubic 224,224"),
        ("ConvNextFeatureExtractor", {"size": 192, "crop_pct": 0.95}, "edge 202 bicubic 192,192"),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}, "resample": 0}, "resize 384,384 nearest"),
        ("PoolFormerImageProcessor", {"size": {"shortest_edge": 224}, "crop_size": 224}, "edge 248 bicubic 224,224"),
        ("ViTImageProcessor", {"size": 224, "do_resize": False}, ""),
    ],
)
def test_images_of_each_class_are_scaled_and_cut_as_by_transformers(tmp_path, name, images, keys):
    """Of Pillow's kind; answers of transformers 5.24 were equal to 2e-6."""
    images |= {"feature_extractor_type": name, "do_normalize": False, "do_rescale": False}
    taken = hugging_face(tmp_path / "vit", config={}, preprocessor_config=images)
    of = {"imageResize": "resize", "imageShortestEdge": "edge"}
    named = {
        key: f"{of.get(key, '')} {value}".strip()
        for key, value in taken.keys.items()
        if key not in ("jobName", "imageColor")
    }
    assert " ".join(named.values()) == keys
    assert [line.partition(":")[0] for line in taken.left] == ["resample nearest of preprocessor_config.json"] * (
        "nearest" in keys
    )


@pytest.mark.parametrize(
    ("images", "keys", "left"),
    [
        (
            {
                "image_processor_type": "PerceiverImageProcessor",
                "size": {"height": 8, "width": 8},
                "do_normalize": False,
            },
            {"imageScale": 1 / 255, "imageResize": "8,8", "imageResample": "bilinear"},
            ["PerceiverImageProcessor of preprocessor_config.json, a class whose steps are not known here: clients"],
        ),
        (
            {"do_normalize": False, "do_rescale": False, "do_flip_channel_order": True, "size": [32, 16], "pad": 3},
            {"imageColor": "BGR", "imageResize": "16,32", "imageResample": "bilinear"},
            ["pad of preprocessor_config.json: no key"],
        ),
        (
            {
                "do_normalize": True,
                "size": {"shortest_edge": 8, "longest_edge": 9},
                "do_center_crop": True,
                "do_pad": True,
            },
            {"imageScale": 1 / 255},
            ["mean and deviation, which are not in", "the size {'shortest_edge': 8", "the crop of", "do_pad of"],
        ),
        (
            {"image_processor_type": "EfficientNetImageProcessor", "do_resize": False, "rescale_offset": True}
            | {"rescale_factor": 0.5, "image_mean": [0.5, 1, 0], "image_std": [0.5, 2, 1]},
            {"imageScale": 0.5, "imageMean": [1.5, 2, 1], "imageStd": [0.25, 4, 1]},
            [],
        ),
    ],
)
def test_what_differs_of_images_is_named(tmp_path, images, keys, left):
    taken = hugging_face(tmp_path / "vit", config={"model_type": "vit"}, preprocessor_config=images)
    assert taken.keys == {"jobName": "vit", "imageColor": "RGB"} | keys
    lines = [*taken.left]
    assert len(lines) == len(left)
    for start in left:
        assert any(line.startswith(start) for line in lines), lines


def test_images_of_a_model_of_texts_and_images(tmp_path):
    """As `CLIPProcessor.save_pretrained` of transformers 5 writes them."""
    images = {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 32},
        "crop_size": {"height": 32, "width": 32},
    }
    images |= {"do_normalize": False, "do_rescale": False, "resample": 3, "padding": 1}
    processor = {"image_processor": images, "processor_class": "CLIPProcessor", "num_image_tokens": 5}
    taken = hugging_face(tmp_path / "clip", config={}, processor_config=processor, tokenizer={})
    size = {"imageShortestEdge": 32, "imageResample": "bicubic", "imageCrop": "32,32", "imageColor": "RGB"}
    assert taken.keys == {"jobName": "clip", "tokenizer": "none"} | size
    assert taken.left[0] == "padding of processor_config.json: no key of config.yaml means this"
    assert "num_image_tokens of processor_config.json: no key of config.yaml means this" in taken.left
    assert any(line.startswith("texts of a model that takes images: clients send token ids") for line in taken.left)


def test_sounds_are_no_images(tmp_path):
    sounds = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": True, "sampling_rate": 8000}
    taken = hugging_face(tmp_path / "s", config={}, preprocessor_config=sounds | {"padding_value": 0.0})
    assert taken.keys == {"jobName": "s"}
    assert taken.left == [
        "Wav2Vec2FeatureExtractor of preprocessor_config.json: clients, or preprocess of a handler, send what it makes "
        "of a sound of 8000 numbers a second, less their mean and divided by their deviation",
        "padding_value of preprocessor_config.json: how clients, or a handler, prepare a sound",
    ]


@pytest.mark.parametrize(
    ("architecture", "answers"),
    [
        ("BertForTokenClassification", "logits of each token; id2label"),
        ("GPT2LMHeadModel", "logits of the next token: a handler generates texts"),
        ("T5ForConditionalGeneration", "logits of the next token: a handler generates texts"),
    ],
)
def test_what_a_pipeline_makes_of_answers_is_named(tmp_path, architecture, answers):
    config = {"architectures": [architecture], "id2label": {"0": "B-PER"}}
    taken = hugging_face(tmp_path / "m", config=config, generation_config={"do_sample": True})
    start = f"what transformers makes of the outputs of {architecture}: answers are {answers}"
    assert taken.left[0].startswith(start) and len(taken.left) == 2
    assert taken.left[1].startswith("generation_config.json in ")


def test_a_model_in_parts_is_refused(tmp_path):
    (tmp_path / "onnx").mkdir()
    (tmp_path / "config.json").write_text("{}")
    for name in ("encoder_model.onnx", "decoder_model_merged.onnx"):
        (tmp_path / "onnx" / name).write_bytes(b"")
    with pytest.raises(
        LaunchError, match=r"in parts \(decoder_model_merged.onnx, encoder_model.onnx\), which generates"
    ):
        origins.read(tmp_path)


def triton(folder, config, **files):
    (folder / "1").mkdir(parents=True)
    for name, content in files.items():
        (folder / "1" / name.replace("_", ".")).write_bytes(content)
    (folder / "config.pbtxt").write_text(config)
    return origins.read(folder)


def test_triton_with_a_file_of_another_name_and_parameters_of_fil(tmp_path):
    config = """
        backend: "fil" max_batch_size: 0 default_model_filename: "my.json"
        input [{name: "input__0" data_type: TYPE_FP32 dims: [4] reshape { shape: [] }}]
        parameters [
            {key: "model_type" value: {string_value: "xgboost_json"}},
            {key: "predict_proba" value: {string_value: "true"}},
            {key: "threshold" value: {string_value: "0.5"}}
        ]
        parameters {key: "INFERENCE_NUM_THREADS" value {string_value: "3"}}
        instance_group [{count: 2}, {count: 4 passive: true}]
        dynamic_batching { priority_levels: 2 }
        version_policy { latest { num_versions: 2 } }
        model_warmup [{name: "a"}]
    """
    taken = triton(tmp_path / "trees", config, my_json=b"{}")
    assert taken.keys == {
        "jobName": "trees",
        "inputs": "x",
        "outputs": "probabilities",
        "threadPerModel": 3,
        "modelParallelism": 2,
    }
    assert [*taken.files] == ["1/model.json"]
    said = "\n".join(taken.left)
    for named in (
        "the parameter threshold (0.5) of config.pbtxt: set outputs: probabilities, and compare in the client",
        "max_batch_size 0",
        "reshape of 'input__0'",
        "version_policy",
        "dynamic_batching.priority_levels of config.pbtxt: a request names its priority",
        "model_warmup of config.pbtxt: a job computes records",
    ):
        assert named in said


def test_trees_of_any_name_in_triton_get_a_name_that_tells_their_engine(tmp_path):
    config = """
        backend: "fil" default_model_filename: "trees.txt"
        parameters {key: "model_type" value: {string_value: "lightgbm"}}
    """
    assert [*triton(tmp_path / "trees", config, trees_txt=b"").files] == ["1/model.txt"]


def test_triton_with_a_folder_that_names_a_missing_file(tmp_path):
    with pytest.raises(LaunchError, match="has no b.onnx, which config.pbtxt names as default_model_filename"):
        triton(tmp_path / "a", 'platform: "onnxruntime_onnx" default_model_filename: "b.onnx"', a_onnx=b"")


def test_external_data_of_onnx_is_taken(tmp_path):
    text = "flavors: {onnx: {data: model.onnx, providers: [CPU]}, python_function: {env: {a: b}}}\nmetadata: {x: 1}\n"
    folder = foreign.mlflow(tmp_path / "net", text + "novel: 1\n")
    (folder / "model.onnx").write_bytes(b"..location 0f1e-4a5b..")
    (folder / "0f1e-4a5b").write_bytes(b"weights")
    taken = origins.read(folder)
    assert sorted(taken.files) == ["0f1e-4a5b", "model.onnx"]
    said = "\n".join(taken.left)
    assert "providers of the flavor onnx" in said and "env of the flavor python_function" in said
    assert "metadata of MLmodel: for people" in said and "novel of MLmodel: no key" in said


def test_extra_files_of_an_archive_are_taken_as_external_data_or_named(tmp_path):
    settings = "batchSize: 4\njobQueueSize: 50\ndeviceType: gpu\ndeviceIds: [0, 1]\nminWorkers: 1\nhandler: {a: 1}\n"
    files = {"net.onnx": b"..w.data..", "w.data": b"1", "vocab.txt": "a", "c.yaml": settings}
    named = {"serializedFile": "net.onnx", "configFile": "c.yaml", "extraFiles": "vocab.txt"}
    taken = origins.read(foreign.archive(tmp_path / "net.mar", files, **named))
    assert sorted(taken.files) == ["net.onnx", "w.data"]
    assert taken.keys == {"jobName": "net", "maxBatchSize": 4, "maxQueueLength": 50, "device": "cuda:0,cuda:1"}
    said = "\n".join(taken.left)
    for line in (
        "vocab.txt: files for the code of the handler",
        "minWorkers of c.yaml",
        "handler of c.yaml: the code of a",
    ):
        assert line in said
    assert "model.extraFiles of MAR-INF/MANIFEST.json: the code of a handler reads it" in said


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("model.py", "is a model of Triton's python: its model.py is not run"),
        ("model.plan", "is a model of Triton's tensorrt: a TensorRT plan fits one kind of GPU"),
        ("model.graphdef", "is a model of Triton's tensorflow_graphdef: save the graph as a SavedModel"),
    ],
)
def test_triton_finds_the_backend_of_some_files_without_a_configuration(tmp_path, file, message):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / file).touch()
    with pytest.raises(LaunchError, match=message):
        origins.read(tmp_path / "m")


def test_files_that_no_engine_loads_are_refused_when_they_are_taken(tmp_path):
    archive = foreign.archive(tmp_path / "net.mar", {"net.so": b"code"}, serializedFile="net.so")
    with pytest.raises(
        LaunchError, match=r"net.mar cannot be served: the model folder model holds no model. Found: net"
    ):
        origins.read(archive)
    foreign.archive(tmp_path / "other.mar", {"net.onnx": b"graph"}, serializedFile="net.onnx")
    assert "the model net.mar: " in "".join(origins.read(tmp_path).left)
