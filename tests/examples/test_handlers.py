"""The programs of examples/handlers, each beside the model that it needs."""

import base64
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
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

from cluster_serving.job.programs.dev_runner import read_inputs
from cluster_serving.job.trial import InvalidInput, Trial
from tests.support.payloads import model_zoo, texts

EXAMPLES = Path(__file__).parents[2] / "examples" / "handlers"


def copied(tmp_path, name):
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.py")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_examples_are_short(path):
    assert len(path.read_text().splitlines()) < 60


@contextmanager
def served(folder):
    """A handler, once it has answered what the README of the examples says to try."""
    (command,) = re.findall(rf"^\| `{folder.name}/` \|.*\| `(.*)` \|$", (EXAMPLES / "README.md").read_text(), re.M)
    option, *texts = re.split(r" -i ", f" -i {command}")
    assert option == ""
    texts = [shlex.split(text)[0].replace("=@", f"=@{folder.parent}/") for text in texts]
    for name in ("cat.jpg", "street.jpg"):
        cv2.imwrite(folder.parent / name, np.zeros((90, 120, 3), "u1"))
    np.save(folder.parent / "digit.npy", np.zeros(64, "f4"))
    (folder.parent / "series.json").write_text(json.dumps([0.5] * 100))
    with Trial(folder) as handler:
        assert handler(**read_inputs(texts, handler.report().inputs))
        yield handler


def png(pixels):
    return cv2.imencode(".png", pixels)[1].tobytes()


def test_thumbnail(tmp_path):
    folder = copied(tmp_path, "thumbnail")
    model_zoo.save_openvino_digit_images(folder)
    x, _ = model_zoo.digits_data()
    right = model_zoo.digits_mlp(x[:5]).argmax(1)
    with served(folder) as handler:
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
    with served(folder) as handler:
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
    with served(folder) as handler:
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
    with served(folder) as handler:
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
    module = imported(folder / "features.py")

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
    with served(folder) as handler:
        for language, kinds in TEXTS.items():
            for kind, texts in kinds.items():
                for text in texts:
                    outputs = handler(text=text)
                    assert (outputs["language"], outputs["class"]) == (language, kind), text
                    assert outputs["probability"] > 0.5
        with pytest.raises(InvalidInput, match="the text is empty"):
            handler(text=" ")


def run(folder, program, data):
    """Run a program of an example as its user does."""
    done = subprocess.run([sys.executable, program, data], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_anomaly(tmp_path):
    folder = copied(tmp_path, "anomaly")
    random = np.random.default_rng(0)

    def series(count):
        return np.sin(np.arange(count) / 8) + random.normal(0, 0.05, count)

    np.savetxt(tmp_path / "history.csv", series(20_000))
    assert "detector.joblib: an isolation forest of 1247 windows" in run(folder, "train.py", tmp_path / "history.csv")
    with served(folder) as handler:
        usual, broken = series(1000).astype("f4"), series(1000).astype("f4")
        broken[500:540] = 4
        # A forest may take a rare window of the usual for an anomaly.
        assert len(handler(values=usual)["anomalies"]) <= 1
        worst = min(handler(values=broken)["anomalies"], key=lambda one: one["score"])
        assert worst["start"] <= 500 and worst["end"] >= 540 and worst["end"] - worst["start"] < 200
        assert worst["score"] < 0
        # The newest value counts, whatever the length.
        usual[-1] = 9
        assert min(handler(values=usual[3:])["anomalies"], key=lambda one: one["score"])["end"] == 997
        with pytest.raises(InvalidInput, match="values has 63 numbers; expected 64 or more"):
            handler(values=usual[:63])
        broken[17] = np.nan
        with pytest.raises(InvalidInput, match=r"values\[17\] is nan; expected finite numbers"):
            handler(values=broken)


def test_segmentation(tmp_path):
    from onnx import helper

    folder = copied(tmp_path, "segmentation")
    (folder / "labels.txt").write_text("ground\nwater\nother")
    # The score of a class is a colour: red, blue, green.
    weights = {"w": np.eye(3, dtype="f4")[[0, 2, 1]].reshape(3, 3, 1, 1)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    ports = {"x": ("FLOAT", ["n", 3, 8, 8])}, {"y": ("FLOAT", ["n", 3, 8, 8])}
    model_zoo.save_onnx(folder, nodes, *ports, weights)
    pixels = np.zeros((20, 40, 3), "u1")
    pixels[:, :10, 2], pixels[:, 10:, 0] = 255, 255
    with served(folder) as handler:
        outputs = handler(image=png(pixels))
        mask = cv2.imdecode(np.frombuffer(base64.b64decode(outputs["mask"]), "u1"), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(mask, np.repeat(np.arange(40)[np.newaxis] >= 10, 20, 0))
        assert outputs["areas"] == {"ground": 0.25, "water": 0.75}
        with pytest.raises(InvalidInput, match="image has 21 x 1 pixels; expected sides that differ by 20 times or l"):
            handler(image=png(pixels[:1, :21]))


def test_tabular_onnx(tmp_path):
    folder = copied(tmp_path, "tabular_onnx")
    features, random = imported(folder / "features.py"), np.random.default_rng(0)

    def application():
        return {
            "amount": random.uniform(1e3, 1e5),
            "income": random.uniform(1e4, 1e5),
            "age": int(random.integers(18, 90)),
            "purpose": str(random.choice(features.PURPOSES)),
            "applied": f"2025-{random.integers(1, 13):02}-15",
        }

    known = [application() for _ in range(500)]
    assert not any(map(features.problems, known))
    x = np.array([features.vector(one) for one in known], "f4")
    assert x.shape[1] == len(features.NAMES)
    failed = np.array([one["amount"] > one["income"] for one in known])
    model = LogisticRegression(C=100).fit(x, failed)
    signs = np.array([-0.5, 0.5])
    weights = {"w": (model.coef_.T * signs).astype("f4"), "b": (model.intercept_ * signs).astype("f4")}
    save_linear(tmp_path / "linear", weights, x.shape[1])
    shutil.move(tmp_path / "linear" / "model.onnx", folder)
    with served(folder) as handler:
        for one, risk in zip(known[:20], model.predict_proba(x)[:20, 1], strict=True):
            outputs = handler(**one)
            assert outputs["risk"] == pytest.approx(risk, abs=1e-3)
            assert outputs["decision"] == ("accept" if outputs["risk"] < 0.2 else "look at it")
        with pytest.raises(InvalidInput) as refused:
            handler(amount=5e6, income=np.nan, age=17, purpose="yacht", applied="soon")
        assert str(refused.value) == (
            "amount is 5,000,000; expected 100 to 1,000,000; income is nan; expected 0 to 10,000,000; age is 17; "
            "expected 18 to 120; purpose is 'yacht'; expected one of car, home, study, other; applied is 'soon'; "
            "expected a date such as 2025-12-31"
        )
        with pytest.raises(InvalidInput, match="applied"):
            handler(**{name: value for name, value in known[0].items() if name != "applied"})


def test_recommender(tmp_path):
    folder = copied(tmp_path, "recommender")
    random = np.random.default_rng(0)
    # Each user likes the items of one kind.
    kinds = {kind: [f"{kind} {number}" for number in range(10)] for kind in ("crime", "novel", "cooking")}
    kinds["novel"][:2] = ["Emma", "Ulysses"]
    rows = [
        f"{user},{item},{random.integers(3, 6)}"
        for user in range(90)
        for item in random.choice(kinds[list(kinds)[user % 3]], 6, replace=False)
    ]
    (tmp_path / "ratings.csv").write_text("\n".join(rows))
    assert "vectors.npy: 30 items, 29 dimensions" in run(folder, "build.py", tmp_path / "ratings.csv")
    with served(folder) as handler:
        for kind, names in kinds.items():
            items = handler(liked=names[:3], count=5)["items"]
            assert len(items) == 5
            assert {one["item"] for one in items} <= set(names[3:]), kind
            scores = [one["score"] for one in items]
            assert scores == sorted(scores, reverse=True)
        # Items that the user knows are no recommendations.
        assert len(handler(liked=kinds["crime"], count=100)["items"]) == 20
        for wrong, message in (
            ({"liked": ["crime 0", "a", "b"]}, "liked has unknown items: a, b"),
            ({"liked": []}, "liked has 0 items; expected 1 to 100"),
            ({"count": 0}, "count is 0; expected 1 to 100"),
        ):
            with pytest.raises(InvalidInput, match=message):
                handler(**{"liked": ["crime 0"], "count": 3} | wrong)


def save_linear(folder, weights, size=512):
    from onnx import helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["y"], axis=1),
    ]
    model_zoo.save_onnx(folder, nodes, {"x": ("FLOAT", ["n", size])}, {"y": ("FLOAT", ["n", 2])}, weights)


def test_embedding_reranking(tmp_path):
    folder = copied(tmp_path, "embedding_reranking")
    texts.save_reader(folder)
    query, candidates = "the cat sat on the mat", ["a bird sang", "the cat sat on a mat", "rain and sun", ""]
    vectors = [tokens.mean(axis=0) for tokens in texts.tokens(query, *candidates)]
    first, *others = [vector / np.linalg.norm(vector) for vector in vectors]
    scores = np.array(others) @ first
    with served(folder) as handler:
        ranking = handler(query=query, candidates=candidates)["ranking"]
        assert [one["index"] for one in ranking] == np.argsort(-scores).tolist()
        assert ranking[0]["text"] == "the cat sat on a mat"
        np.testing.assert_allclose([one["score"] for one in ranking], np.sort(scores)[::-1], atol=1e-5)
        with pytest.raises(InvalidInput, match="there are 101 candidates; expected 1 to 100"):
            handler(query="cat", candidates=["cat"] * 101)


SENTENCES = [
    (f"{name} {verb} in {place} .", kinds)
    for name, first in (("Anna", ["B-PER"]), ("Jo Smith", ["B-PER", "I-PER"]), ("Max", ["B-PER"]))
    for verb in ("lives", "works", "sings")
    for place, last in (("Rome", ["B-LOC"]), ("New York", ["B-LOC", "I-LOC"]), ("Ulm", ["B-LOC"]))
    for kinds in ([*first, "O", "O", *last, "O"],)
]
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def test_token_classification(tmp_path):
    import torch

    folder = copied(tmp_path, "token_classification")
    (folder / "labels.txt").write_text("\n".join(LABELS))
    tokenizer = texts.save_tokenizer(folder, words=sorted({word for text, _ in SENTENCES for word in text.split()}))

    class Labels(torch.nn.Module):
        """The label of a token depends on it and on those beside it."""

        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(tokenizer.get_vocab_size(), 16)
            self.layer = torch.nn.Conv1d(16, len(LABELS), 3, padding=1)

        def forward(self, input_ids, attention_mask):
            x = self.words(input_ids) * attention_mask.unsqueeze(2)
            return self.layer(x.transpose(1, 2)).transpose(1, 2)

    torch.manual_seed(0)
    model = Labels()
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(30):
        for text, kinds in SENTENCES:
            ids = torch.tensor([tokenizer.encode(text).ids])
            right = torch.tensor([LABELS.index(kind) for kind in ("O", *kinds, "O")])
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(ids, torch.ones_like(ids))[0], right).backward()
            optimizer.step()
    texts.save_module(model, folder, ["input_ids", "attention_mask"], "scores")
    with served(folder) as handler:
        entities = handler(text="Max Smith sings in   New York .")["entities"]
        assert [(one["kind"], one["start"], one["end"], one["text"]) for one in entities] == [
            ("PER", 0, 9, "Max Smith"),
            ("LOC", 21, 29, "New York"),
        ]
        assert all(0.5 < one["score"] <= 1 for one in entities)
        assert handler(text="")["entities"] == []


# On a busy machine, the training takes minutes.
@pytest.mark.timeout(900)
def test_generator(tmp_path):
    folder = copied(tmp_path, "generator")
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. the dog sat on the log. " * 20)
    # A second thread waits for the first one at each small step, on a busy machine for long.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, folder / "train.py", text], check=True, env=environment)
    with served(folder) as handler:
        pieces = handler.pieces(prompt="the cat ", max_tokens=8, temperature=0.0)
        assert "".join(piece["text"] for piece in pieces) == "sat on t"
        assert [piece["finish_reason"] for piece in pieces] == [""] * 7 + ["length"]
        assert handler(prompt="the cat ", max_tokens=3, temperature=0.0) == {"text": "sat", "finish_reason": "length"}
        assert len(handler.pieces(prompt="the ", max_tokens=5, temperature=1.0)) == 5
        assert handler.pieces(prompt="the ", max_tokens=0, temperature=1.0) == [{}]
        with pytest.raises(InvalidInput, match="none of the characters"):
            handler(prompt="XYZ", max_tokens=5, temperature=1.0)
