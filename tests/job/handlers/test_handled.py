"""Handlers around real models, without Flink."""

import logging

import cv2
import numpy as np
import pytest
from redis.exceptions import ConnectionError

from cluster_serving.job.handlers import failure
from cluster_serving.job.request import Request
from cluster_serving.job.timeouts import watched
from cluster_serving.protocol.entry import NATIVE, PIECES, Entry
from cluster_serving.protocol.errors import InferenceTimeout, InvalidInput, ModelError
from cluster_serving.protocol.inputs import Image
from cluster_serving.protocol.log_limit import LogLimit
from tests.support.fixtures.handled import answers, load, results, vector, write
from tests.support.fixtures.predictor import save_doubling, save_overlapping
from tests.support.payloads import model_zoo


def test_code_before_and_after_a_model_is_five_lines(tmp_path):
    save_doubling(tmp_path, 3)
    write(
        tmp_path,
        """
        class Handler:
            def preprocess(self, request):
                return {"x": request["pixels"] / 10}
            def postprocess(self, result):
                return {"label": "high" if result["y"].sum() > 1 else "low", "sum": result["y"].sum()}
        """,
    )
    predictor = load(tmp_path)
    # Requests of any dtype that the model takes after preprocessing; float64 becomes the model's float32.
    high, low, wrong = results(
        predictor,
        {"pixels": np.full(3, 50, "u1")},
        {"pixels": np.zeros(3, "u1")},
        {"pixels": np.zeros(4, "u1")},
    )
    assert (high["label"].item(), high["sum"]) == ("high", 30)
    assert low["label"].item() == "low"
    assert "cannot be called: input 'x' has shape [1, 4], but the model expects x: float32[?, 3]" in str(wrong.error)
    assert predictor.report().engine == "Python handler (handler:Handler)"


def test_a_class_without_methods_of_its_own_serves_the_model(tmp_path):
    save_doubling(tmp_path, 3)
    write(tmp_path, "class Handler:\n    def load(self, context): assert context.threads == 1\n")
    predictor = load(tmp_path)
    right, wrong = results(predictor, vector(1, 2, 3), vector(1, 2))
    assert right.tolist() == [2, 4, 6]
    assert isinstance(wrong.error, InvalidInput)
    assert [str(spec) for spec in predictor.report().inputs] == ["x: float32[?, 3]"]
    assert [str(spec) for spec in predictor.report().outputs] == ["y: float32[?, 3]"]


def test_all_kinds_of_values_come_in_and_go_out(tmp_path):
    write(
        tmp_path,
        """
        import numpy as np

        class Handler:
            inputs = {"photo": "image", "text": "str", "words": "str[?]", "number": "float32", "rows": "int64[?, 2]"}
            outputs = {"about": "str"}

            def preprocess(self, request):
                assert request["photo"].dtype == np.uint8 and request["photo"].shape == (4, 6, 3)
                assert isinstance(request["text"], str)
                return request | {"ids": [len(word) for word in request["words"]]}

            def predict(self, batch):
                assert batch["number"].ndim == 1
                return {
                    "sum": batch["rows"].sum(axis=(1, 2)) + batch["number"],
                    "upper": [text.upper() for text in batch["text"]],
                    "found": [{"ids": ids, "best": np.float32(ids[0]), "none": None} for ids in batch["ids"]],
                    "ragged": [np.zeros((len(ids), 4)) for ids in batch["ids"]],
                }
        """,
    )
    photo = Image(cv2.imencode(".png", np.zeros((4, 6, 3), "u1"))[1].tobytes())
    predictor = load(tmp_path)
    assert [str(spec) for spec in predictor.report().inputs] == [
        "photo: uint8[?, ?, ?, 3]",
        "text: str[?]",
        "words: str[?, ?]",
        "number: float32[?]",
        "rows: int64[?, ?, 2]",
    ]
    record = {
        "photo": photo,
        "text": np.array("zwölf", object),
        "words": np.array(["a", "bc"], object),
        "number": np.array(0.5),
        "rows": np.ones((3, 2)),
    }
    for words in (["a", "bc"], ["abc"]):
        first, other = results(predictor, record, record | {"words": np.array(words, object)})
        assert first["sum"] == 6.5
        assert first["upper"].item() == "ZWÖLF"
        assert first["found"].item() == {"ids": [1, 2], "best": 1.0, "none": None}
        assert other["ragged"].shape == (len(words), 4)
    assert "expects" in str(results(predictor, {"photo": photo})[0].error)


def test_an_exception_fails_the_record_that_causes_it_alone(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(failure, "_limit", LogLimit(most=1))
    write(
        tmp_path,
        """
        from cluster_serving.job.handlers import InvalidInput

        def check(values):
            if (values == 3).any():
                raise KeyError("lost")
            return values

        class Handler:
            def preprocess(self, request):
                if request["x"][0] == 1:
                    raise InvalidInput("one is not taken")
                if request["x"][0] == 2:
                    return None
                return request
            def predict(self, batch):
                return {"y": check(batch["x"])}
            def postprocess(self, result):
                return {"y": 12 / result["y"][0]}
        """,
    )
    predictor = load(tmp_path)
    caplog.set_level(logging.ERROR)
    with np.errstate(divide="raise"):
        found = answers(predictor, *(vector(number) for number in range(6)))
    assert [answer.fields.get("code") for answer in found] == [
        "INFERENCE_FAILED",
        "INVALID_INPUT",
        "INFERENCE_FAILED",
        "INFERENCE_FAILED",
        None,
        None,
    ]
    errors = [answer.fields.get("error", "") for answer in found]
    assert (
        errors[0]
        == "the handler failed in postprocess: FloatingPointError: divide by zero encountered in scalar divide"
    )
    assert errors[1] == "one is not taken"
    assert errors[2] == (
        "the handler failed in preprocess: TypeError: preprocess returned NoneType; expected a dict of names and values"
    )
    assert errors[3] == "the handler failed in predict: KeyError: 'lost'"
    # The operator has the stack; clients do not.
    assert [bool(answer.letters) for answer in found] == [True, False, True, True, False, False]
    assert 'handler.py", line 6, in check\n    raise KeyError("lost")' in found[3].letters[0].traceback
    assert "handled.py" not in found[3].letters[0].traceback
    assert caplog.text.count("KeyError") >= 1
    before = caplog.text.count("Traceback")
    answers(predictor, vector(3), vector(3))
    assert caplog.text.count("Traceback") == before


def test_a_handler_calls_several_models_which_close_after_it(tmp_path):
    for name in ("a", "b"):
        save_doubling(tmp_path / name, 2)
        for file in (tmp_path / name).iterdir():
            file.rename(tmp_path / f"{name}{file.suffix}")
    save_doubling(tmp_path / "c", 2)
    write(
        tmp_path,
        """
        class Handler:
            def load(self, context):
                self.models = [context.load(name) for name in ("a.xml", "b.xml", "c", "a.xml")]
                assert self.models[0] is self.models[3]
            def predict(self, batch):
                return {"y": sum(model(batch)["y"] for model in self.models)}
            def unload(self):
                print("unloaded", self.models[0](dict(x=[[1.0, 2.0]]))["y"].tolist())
        """,
    )
    predictor = load(tmp_path)
    assert results(predictor, vector(1, 2))[0].tolist() == [8, 16]
    predictor.close()


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import nothing_of_that_name", "cannot be imported: ModuleNotFoundError: No module named 'nothing_of_that"),
        ("class A:\n  def load(self, c): 1/0", "the method load of the handler handler:A in .* failed: ZeroDivision"),
        ("x = 1", "handler.py has no class with one of the methods load, preprocess"),
        (
            "class A:\n  def unload(self): 0\nclass B(A): 0",
            "has the classes A, B; name one of them Handler, or set hand",
        ),
        ("class A:\n  def postprocess(self, r): 0", "holds no model"),
        ("class A:\n  def load(self, c): c.load('a.onnx')", "has no file a.onnx; it holds handler.py"),
        (
            "class A:\n  inputs = {'x': 'float99'}\n  def predict(self, b): 0",
            "has 'float99' for 'x'; expected \"image\"",
        ),
    ],
)
def test_a_handler_that_cannot_be_loaded_says_why(tmp_path, code, problem):
    with pytest.raises(ModelError, match=problem):
        load(write(tmp_path, code))


def test_config_names_another_class_or_none(tmp_path, monkeypatch):
    save_doubling(tmp_path, 1)
    write(tmp_path, "class A:\n  def postprocess(self, r): return {'y': r['y'] + 1}\nclass B(A): pass")
    assert results(load(tmp_path, handler="handler:B"), vector(1))[0].tolist() == [3]
    assert results(load(tmp_path, handler="none"), vector(1))[0].tolist() == [2]
    (tmp_path / "site").mkdir()
    code = "class Mine:\n  def postprocess(self, r): return {'y': r['y'] - 1}"
    write(tmp_path / "site", code, "installed_handler.py")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert results(load(tmp_path, handler="installed_handler:Mine"), vector(1))[0].tolist() == [1]
    with pytest.raises(ModelError, match="the module json has no class Nothing"):
        load(tmp_path, handler="json:Nothing")


def test_a_handler_from_an_address_runs_only_if_config_names_it(tmp_path, monkeypatch):
    from zipfile import ZipFile

    monkeypatch.setenv("CLUSTER_SERVING_CACHE", str(tmp_path / "cache"))
    with ZipFile(tmp_path / "model.zip", "w") as file:
        file.writestr("handler.py", "class Handler:\n  def predict(self, b): return {'y': b['x']}")
    address = f"file://{tmp_path}/model.zip"
    with pytest.raises(
        ModelError, match=r"brings Python code \(handler.py\), which is not run unless .* handler:Handl"
    ):
        load(address)
    assert results(load(address, handler="handler:Handler"), vector(1))[0].tolist() == [1]


def test_a_batch_of_a_client_is_computed_row_by_row(tmp_path):
    write(
        tmp_path,
        """
        class Handler:
            inputs = {"x": "float32[2]"}
            def preprocess(self, request):
                assert request["x"].shape == (2,)
                return request
            def predict(self, batch):
                return {"y": batch["x"] * 2}
        """,
    )
    (result,) = results(load(tmp_path), {"x": np.ones((5, 2), "f4")})
    assert result.shape == (5, 2)


def test_a_handler_that_hangs_is_abandoned(tmp_path):
    write(
        tmp_path,
        """
        import time
        class Handler:
            def postprocess(self, result):
                while result["x"][0] < 0:
                    time.sleep(0.01)
                return result
            def predict(self, batch):
                return batch
        """,
    )
    predictor = load(tmp_path, inference_timeout_s=0.5)
    one, hanging, other = results(predictor, vector(1), vector(-1), vector(2))
    assert (one[0], other[0]) == (1, 2)
    assert isinstance(hanging.error, InferenceTimeout)
    assert not predictor.exhausted


def test_filters_apply_to_the_outputs_of_a_handler(tmp_path):
    write(tmp_path, "class Handler:\n  def predict(self, b): return {'y': b['x']}")
    (result,) = results(load(tmp_path, post_processing="topN(1)"), vector(3, 9, 4))
    assert result.top_n == [(1, 9.0)]
    (text,) = results(load(tmp_path), {"x": np.array("text", object)})
    assert text.item() == "text"


def test_outputs_that_cannot_be_sent_fail_their_request(tmp_path):
    write(tmp_path, "class Handler:\n  def predict(self, b): return {'y': [object() for _ in b['x']]}")
    (answer,) = answers(load(tmp_path), vector(1))
    assert answer.fields["code"] == "INFERENCE_FAILED"
    assert "the outputs cannot be sent" in answer.fields["error"]
    # The fault is the handler's: mended, it may compute the request.
    assert "the outputs cannot be sent" in answer.letters[0].error


def test_a_handler_without_predict_keeps_the_overlap_of_its_model(tmp_path):
    save_overlapping(tmp_path)
    write(
        tmp_path,
        """
        class Handler:
            def preprocess(self, request):
                return {"x": request["x"] * (1 if request["x"].any() else None)}
            def postprocess(self, result):
                assert result["y"].shape == (1,)
                return {"twice": 2 * result["y"]}
        """,
    )
    predictor = load(tmp_path, thread_per_model=2)
    assert predictor.overlaps
    records = np.ones((4, 3, 64, 64), "f4")
    records[1] = 0
    records[2, 0, 0, 0] = 6
    one, unprepared, failing, same = results(predictor, *({"x": record} for record in records))
    assert one["twice"].tolist() == same["twice"].tolist()
    assert "the handler failed in preprocess: TypeError" in str(unprepared.error)
    assert "OpenVINO failed" in str(failing.error)
    predictor.close()


def test_a_handler_knows_its_device(tmp_path):
    save_doubling(tmp_path, 3)
    write(
        tmp_path,
        """
        class Handler:
            def load(self, context):
                self.device = context.device
                self.model = context.load()
            def predict(self, batch):
                return self.model({"x": batch["x"]}) | {"device": [self.device] * len(batch["x"])}
        """,
    )
    for device in ("cpu", "auto"):
        predictor = load(tmp_path, device=device)
        (result,) = results(predictor, vector(1, 2, 3))
        assert result["device"].item() in predictor.report().device.split(",")
        assert predictor.servable._engines
        assert set(predictor.report().device.split(",")) >= {
            e.model.device for e in predictor.servable._engines.values()
        }


@pytest.mark.parametrize("asks", ["context.load()", "context.device"])
def test_a_device_that_is_absent_fails_the_handler_that_asks_for_it(tmp_path, asks):
    save_doubling(tmp_path, 3)
    write(
        tmp_path,
        f"""
        class Handler:
            def load(self, context):
                {asks}
            def predict(self, batch):
                return batch
        """,
    )
    with pytest.raises(ModelError, match="^device is cuda:99, and .* reports .*; or set device: auto$"):
        load(tmp_path, device="cuda:99")
    write(tmp_path, "class Handler:\n  def predict(self, batch): return batch")
    assert load(tmp_path, device="cuda:99").report().device == ""


GENERATES = """
    import time

    class Handler:
        inputs = {"x": "float32"}

        def preprocess(self, request):
            if request["x"] == 7:
                time.sleep(60)
            return request

        def predict(self, batch):
            if (batch["x"] == 9).any():
                time.sleep(60)
            for step in range(3):
                yield {"y": batch["x"] + step}
    """


def test_a_hang_before_a_generator_fails_its_request_alone(tmp_path):
    predictor = load(write(tmp_path, GENERATES), inference_timeout_s=0.5)
    first, hanging, last = answers(predictor, *({"x": np.array(x, "f4")} for x in (1, 7, 2)))
    assert hanging.fields["code"] == "INFERENCE_TIMEOUT"
    assert "code" not in first.fields
    assert "code" not in last.fields


def test_requests_that_a_generator_did_not_try_get_no_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(watched, "_hung", [])
    predictor = load(write(tmp_path, GENERATES), inference_timeout_s=0.3)
    codes = set()
    while not predictor.exhausted:
        for answer in answers(predictor, *({"x": np.array(x, "f4")} for x in (1, 9, 2))):
            codes.add((answer.entry.uri == "1", answer.fields.get("code"), answer.fields.get("error", "")))
    assert {hangs for hangs, code, _ in codes if code} == {True}
    assert not any("not computed" in error for _, _, error in codes)


def test_pieces_that_cannot_be_written_leave_their_requests_to_the_next_attempt(tmp_path):
    """Flink then starts the job again; the requests are still pending."""
    written = []

    class Away:
        def attempt(self, entries):
            return self

        def add(self, pieces):
            written.append(len(pieces))
            raise ConnectionError("Redis is away")

    predictor = load(write(tmp_path, GENERATES))
    predictor.send_pieces(Away())
    requests = [
        Request(Entry(b"1-0", str(number), b"", NATIVE, reply_with=PIECES), {"x": np.array(1, "f4")})
        for number in range(4)
    ]
    with pytest.raises(ConnectionError):
        predictor.start(requests, alone=False).answers()
    assert written == [4]


def test_rows_of_a_batch_have_equal_outputs(tmp_path):
    write(
        tmp_path,
        """
        class Handler:
            inputs = {"x": "float32"}

            def predict(self, batch):
                return [{"a": x, "about": {"x": float(x)}} if x else {"a": x} for x in batch["x"]]
        """,
    )
    predictor = load(tmp_path, already_batched=True)
    alike, unlike = results(predictor, {"x": np.array([1, 2], "f4")}, {"x": np.array([1, 0], "f4")})
    assert alike["a"].tolist() == [1, 2]
    assert alike["about"].item() == [{"x": 1.0}, {"x": 2.0}]
    assert "row 0 of the batch has the outputs a, about, row 1 a" in str(unlike.error)


def test_a_handler_gets_what_the_model_gives_unchecked(tmp_path):
    """Its tensors may have the batch anywhere, or nowhere; without `predict` the job finds out where."""
    from onnx import helper

    nodes = [
        helper.make_node("Mul", ["state", "rate"], ["new"]),
        helper.make_node("NonZero", ["state"], ["found"]),
    ]
    inputs = {"state": ("FLOAT", [2, "n", 3]), "rate": ("FLOAT", [])}
    model_zoo.save_onnx(tmp_path, nodes, inputs, {"new": ("FLOAT", [2, "n", 3]), "found": ("INT64", [3, "k"])})
    code = """
        import numpy as np

        class Handler:
            def load(self, context):
                self.model = context.load("model.onnx")

            def predict(self, batch):
                states = np.stack(list(batch["state"]), 1)
                answer = self.model({"state": states, "rate": 2})
                shape = str(answer["found"].shape)
                return {"new": np.moveaxis(answer["new"], 1, 0), "shape": [shape] * states.shape[1]}
    """
    states = np.ones((2, 2, 3), np.float32)
    found = results(load(write(tmp_path, code)), *({"state": state} for state in states))
    assert [result["shape"] for result in found] == ["(3, 12)"] * 2
    np.testing.assert_array_equal(found[0]["new"], 2 * states[0])

    without_predict = "class Handler:\n    def postprocess(self, result):\n        return {'new': result['new']}\n"
    served = load(write(tmp_path, without_predict))
    rates = np.array([3, 5], np.float32)
    found = results(served, *({"state": state, "rate": rate} for state, rate in zip(states, rates, strict=True)))
    for result, state, rate in zip(found, states, rates, strict=True):
        np.testing.assert_array_equal(result["new"], rate * state)
    assert served.report().one_by_one == "input 'rate' has no batch dimension"


@pytest.mark.parametrize(
    "code",
    [
        "bad = [i for i, x in enumerate(batch['x']) if x < 0]\n        if bad: raise RecordFailed(bad[0], 'negative')",
        "return [ValueError('negative') if x < 0 else {'y': x * 2} for x in batch['x']]",
    ],
)
def test_a_handler_tells_which_record_is_wrong(tmp_path, code):
    source = f"""from cluster_serving.job.handlers import RecordFailed

class Handler:
    inputs = {{"x": "float32"}}
    calls = []

    def preprocess(self, record):
        self.calls.append("preprocess")
        return record

    def predict(self, batch):
        self.calls.append(len(batch["x"]))
        {code}
        return {{"y": batch["x"] * 2}}
"""
    (tmp_path / "handler.py").write_text(source)
    predictor = load(tmp_path)
    calls = predictor.servable._predict_batch.__self__.calls
    calls.clear()
    found = results(predictor, *({"x": np.float32(value)} for value in (1, -1, 3, 4)))
    assert [result["y"].item() for index, result in enumerate(found) if index != 1] == [2, 6, 8]
    assert "negative" in str(found[1])
    # No record is prepared a second time, and no batch is halved.
    assert calls == ["preprocess"] * 4 + ([4, 3] if "RecordFailed(" in code else [4])


@pytest.mark.parametrize("step", ["preprocess", "predict", "postprocess"])
def test_a_library_that_exits_fails_its_record_alone(tmp_path, step):
    one = "def {}(self, record):\n        if record['x'] < 0: sys.exit('bad')\n        return record"
    batch = "def predict(self, batch):\n        if (batch['x'] < 0).any(): sys.exit('bad')\n        return batch"
    method = batch if step == "predict" else one.format(step)
    rest = "" if step == "predict" else "\n    def predict(self, batch):\n        return batch\n"
    (tmp_path / "handler.py").write_text(
        f"import sys\n\nclass Handler:\n    inputs = {{'x': 'float32'}}\n\n    {method}\n{rest}"
    )
    good, bad, other = results(load(tmp_path), *({"x": np.float32(value)} for value in (1, -1, 2)))
    assert (good["x"].item(), other["x"].item()) == (1, 2)
    assert f"the handler failed in {step}: SystemExit: bad" in str(bad)
