"""The programs of examples/handlers, each beside the model that it needs."""

import importlib.util
import shutil
from pathlib import Path

import cv2
import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cluster_serving.job.trial import InvalidInput, Trial
from tests.support import model_zoo

EXAMPLES = Path(__file__).parents[2] / "examples" / "handlers"


def copied(tmp_path, name):
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.py")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_examples_are_short(path):
    assert len(path.read_text().splitlines()) < 60


def png(pixels):
    return cv2.imencode(".png", pixels)[1].tobytes()


def test_thumbnail(tmp_path):
    folder = copied(tmp_path, "thumbnail")
    model_zoo.save_openvino_digit_images(folder)
    x, _ = model_zoo.digits_data()
    right = model_zoo.digits_mlp(x[:5]).argmax(1)
    with Trial(folder) as handler:
        for digit, expected in zip(x[:5], right, strict=True):
            grey = np.round(digit * 255).astype("u1").reshape(8, 8).repeat(10, 0).repeat(10, 1)
            wide = cv2.cvtColor(np.pad(grey, ((0, 0), (23, 23))), cv2.COLOR_GRAY2BGR)
            outputs = handler(photo=png(wide))
            assert outputs["class"] == expected
            assert outputs["thumbnail"].shape == (8, 8, 3)
        with pytest.raises(InvalidInput, match="the photo has 4 x 9 pixels"):
            handler(photo=png(np.zeros((9, 4, 3), "u1")))


def test_pandas_pipeline(tmp_path):
    folder = copied(tmp_path, "pandas_pipeline")
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": random.uniform(1, 80, 200), "fare": random.uniform(5, 99, 200), "port": random.choice(["C", "S"], 200)}
    )
    survived = ((frame["age"] < 30) ^ (frame["port"] == "S")).astype(int)
    columns = make_column_transformer((StandardScaler(), ["age", "fare"]), (OneHotEncoder(), ["port"]))
    pipeline = make_pipeline(columns, LogisticRegression()).fit(frame, survived)
    joblib.dump(pipeline, folder / "pipeline.joblib")
    with Trial(folder) as handler:
        for _, row in frame[:5].iterrows():
            outputs = handler(**row)
            expected = pipeline.predict_proba(row.to_frame().T.infer_objects())[0, 1]
            assert outputs["probability"] == pytest.approx(expected, abs=1e-5)
            assert outputs["survived"] == (expected >= 0.5)


def test_detection(tmp_path):
    from openvino import opset13 as ops

    folder = copied(tmp_path, "detection")
    (folder / "labels.txt").write_text("cat\ndog")
    # The second box is nearly the first, the third is of another class, and the last is not certain.
    boxes = np.array([[0.1, 0.1, 0.5, 0.5], [0.12, 0.1, 0.5, 0.52], [0.1, 0.1, 0.5, 0.5], [0.6, 0.6, 1, 1]], "f4")
    scores = np.array([[0.7, 0], [0.9, 0], [0, 0.8], [0.3, 0.1]], "f4")
    x = ops.parameter([-1, 3, 16, 16], np.float32, name="x")
    zero = ops.multiply(ops.reduce_mean(x, [1, 2, 3], keep_dims=True), ops.constant(np.float32(0)))
    zero = ops.reshape(zero, [-1, 1, 1], special_zero=False)
    outputs = {"boxes": ops.add(zero, ops.constant(boxes[None])), "scores": ops.add(zero, ops.constant(scores[None]))}
    model_zoo.save_openvino(folder, {"x": x}, outputs)
    with Trial(folder) as handler:
        objects = handler(image=png(np.zeros((100, 200, 3), "u1")))["objects"]
    assert [(one["label"], one["box"]) for one in objects] == [("cat", [24, 10, 100, 52]), ("dog", [20, 10, 100, 50])]
    assert objects[0]["score"] == pytest.approx(0.9, abs=0.01)


def test_ensemble(tmp_path):
    folder = copied(tmp_path, "ensemble")
    for name, save in {
        "a": model_zoo.save_onnx_digits,
        "b": model_zoo.save_openvino_digits,
        "c": model_zoo.save_torchscript_digits,
    }.items():
        save(tmp_path / name)
        for file in (tmp_path / name).iterdir():
            shutil.copy(file, folder / f"{name}{file.suffix}")
    x, _ = model_zoo.digits_data()
    with Trial(folder) as handler:
        for digit in x[:5]:
            outputs = handler(x=digit)
            np.testing.assert_allclose(outputs["probabilities"], model_zoo.digits_mlp(digit[None])[0], atol=0.02)
            assert outputs["class"] == outputs["probabilities"].argmax()
            assert outputs["agreement"] == 1


TEXTS = {
    "en": {
        "sport": ["the team won the match", "she runs the marathon", "a goal in the last minute", "the coach left"],
        "food": ["bake the bread with flour", "the soup needs salt", "fresh cheese and butter", "she cooks the dinner"],
    },
    "de": {
        "sport": ["die Mannschaft gewann das Spiel", "ein Tor in der letzten Minute", "der Trainer ging", "sie läuft"],
        "food": ["das Brot wird gebacken", "die Suppe braucht Salz", "frischer Käse und Butter", "sie kocht das Essen"],
    },
}


def test_two_stage_text(tmp_path):
    folder = copied(tmp_path, "two_stage_text")
    (folder / "languages.txt").write_text("\n".join(TEXTS))
    (folder / "classes.txt").write_text("sport food")
    spec = importlib.util.spec_from_file_location("features", folder / "features.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def train(name, texts):
        labels = [index for index, some in enumerate(texts) for _ in some]
        vectors = np.stack([module.features(text) for some in texts for text in some])
        model = LogisticRegression(C=100).fit(vectors, labels)
        # Two classes: the probability of the second is the logistic function of one number.
        signs = np.array([-0.5, 0.5])
        weights = {"w": model.coef_.T * signs, "b": model.intercept_ * signs}
        save_linear(tmp_path / name, {key: value.astype("f4") for key, value in weights.items()})
        shutil.move(tmp_path / name / "model.onnx", folder / f"{name}.onnx")

    train("language", [[text for texts in kinds.values() for text in texts] for kinds in TEXTS.values()])
    for language, kinds in TEXTS.items():
        train(language, kinds.values())
    with Trial(folder) as handler:
        for language, kinds in TEXTS.items():
            for kind, texts in kinds.items():
                for text in texts:
                    outputs = handler(text=text)
                    assert (outputs["language"], outputs["class"]) == (language, kind), text
                    assert outputs["probability"] > 0.5
        with pytest.raises(InvalidInput, match="the text is empty"):
            handler(text=" ")


def save_linear(folder, weights):
    from onnx import helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["y"], axis=1),
    ]
    model_zoo.save_onnx(folder, nodes, {"x": ("FLOAT", ["n", 512])}, {"y": ("FLOAT", ["n", 2])}, weights)
