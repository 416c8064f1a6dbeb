"""A predictor in a Python program: records in, results out, without Flink and Redis."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from cluster_serving.job.handlers.failure import HandlerFailed
from cluster_serving.job.options import BatchOptions, ImageOptions, ModelOptions
from cluster_serving.job.predictor import Predictor
from cluster_serving.job.predictor import predictor as module
from cluster_serving.protocol.errors import InferenceTimeout, InvalidInput, ModelError, RequestTooLarge
from cluster_serving.protocol.inputs import Image, SparseTensor
from tests.support.fixtures.handled import write
from tests.support.fixtures.predictor import save_doubling, save_overlapping
from tests.support.payloads import model_zoo, texts


def test_neither_flink_nor_redis_is_imported(tmp_path):
    save_doubling(tmp_path, 3)
    write(tmp_path, "class Handler:\n  def postprocess(self, result): return result")
    program = (
        "import sys\n"
        "from cluster_serving.job.predictor import Predictor\n"
        "with Predictor(sys.argv[1]) as predictor:\n"
        "    print(predictor.predict([{'x': [1, 2, 3]}])[0]['y'].tolist())\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('redis', 'pyflink')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[2.0, 4.0, 6.0]", "[]"]


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch):
    save_doubling(tmp_path / "model", 3)
    monkeypatch.chdir(tmp_path)
    (example,) = doctest.DocTestFinder(recurse=False).find(Predictor, "Predictor", module)
    found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
    assert (found.attempted, found.failed) == (1, 0)


def test_the_program_of_the_page_runs(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "embedding.md").read_text("utf8")
    (program,) = re.findall(r"```python\n([^`]*cluster_serving\.job\..*?)```", page, re.DOTALL)
    save_doubling(tmp_path / "model", 3)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    model, classes, error = done.stdout.splitlines()
    assert model.endswith("x: float32[?, 3] → y: float32[?, 3]")
    assert re.findall(r"\((\d), 0\.\d+\)", classes) == ["2", "1"]
    assert error.startswith("INVALID_INPUT: input 'x' has shape [2], but the model expects x: float32[3]")


def test_each_record_has_its_result_in_its_place(tmp_path):
    """Records of other types and shapes, and wrong ones, stand between those that share a batch."""
    save_doubling(tmp_path, -1)
    values = [[1, 2], np.ones(3, "f4"), "cat", [[1], [2, 3]], {"indices": [0]}, [], np.float64(4), [5, 6]]
    records = [{"x": value} for value in values] + [{"x": [1.5], "y": [1]}, {}]
    with Predictor(tmp_path, BatchOptions(max_batch_size=2)) as predictor:
        assert predictor.predict([]) == []
        results = predictor.predict(records)
    found = {at: result["y"].tolist() for at, result in enumerate(results) if isinstance(result, dict)}
    assert found == {0: [2, 4], 1: [2, 2, 2], 5: [], 6: [8], 7: [10, 12]}
    assert {type(result) for at, result in enumerate(results) if at not in found} == {InvalidInput}
    assert "inputs cannot be read" in str(results[3])
    assert "the request has 2 inputs" in str(results[8])


def test_a_program_gets_arrays_of_the_model(tmp_path):
    save_doubling(tmp_path, 2)
    sparse = SparseTensor(np.array([[1]]), np.array([3], "f4"), (2,))
    with Predictor(tmp_path) as predictor:
        (one, many, made_dense) = predictor.predict([{"x": [1, 2]}, {"x": np.ones((4, 2))}, {"x": sparse}])
        assert [str(spec) for spec in predictor.report().inputs] == ["x: float32[?, 2]"]
    assert (one["y"].dtype, one["y"].shape) == (np.float32, (2,))
    assert many["y"].shape == (4, 2)
    assert made_dense["y"].tolist() == [0, 6]


def test_images_are_bytes_or_files(tmp_path):
    model_zoo.save_openvino_digit_images(tmp_path)
    data = cv2.imencode(".png", np.zeros((20, 20, 3), "u1"))[1].tobytes()
    (tmp_path / "zero.png").write_bytes(data)
    image = ImageOptions(resize=(8, 8), max_image_pixels=1000)
    large = cv2.imencode(".png", np.zeros((50, 50, 3), "u1"))[1].tobytes()
    with Predictor(tmp_path, image=image) as predictor:
        pictures = [data, tmp_path / "zero.png", Image(data), b"none", tmp_path / "none.png", large]
        results = predictor.predict([{"image": picture} for picture in pictures])
    outputs = [next(iter(result.values())) for result in results[:3]]
    assert [output.shape for output in outputs] == [(10,)] * 3
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert [type(result) for result in results[3:]] == [InvalidInput, InvalidInput, RequestTooLarge]


def test_filters_apply(tmp_path):
    save_doubling(tmp_path, 3)
    with Predictor(tmp_path, post_processing="topN(2)") as predictor:
        assert predictor.predict([{"x": [3, 9, 4]}, {"x": [1, 0, 2]}]) == [
            {"y": [(1, 18.0), (2, 8.0)]},
            {"y": [(2, 4.0), (0, 2.0)]},
        ]
    with Predictor(tmp_path, post_processing="argmax") as predictor:
        assert predictor.predict([{"x": [3, 9, 4]}])[0]["y"] == 1
    save_doubling(tmp_path / "table", 2, 2)
    with pytest.raises(ModelError, match="does not fit the model"):
        Predictor(tmp_path / "table", post_processing="topN(2)")


def test_records_of_different_sizes_share_a_call(tmp_path):
    save_doubling(tmp_path, -1)
    options = ModelOptions(str(tmp_path), padding=(("x", 0.0),))
    sizes = []
    with Predictor(options) as predictor:
        inner = predictor.servable.model._model
        predict = inner.predict
        inner.predict = lambda inputs: sizes.append(inputs[0].shape) or predict(inputs)
        results = predictor.predict([{"x": [1.0] * count} for count in (1, 3, 2)])
    assert [result["y"].tolist() for result in results] == [[2], [2] * 3, [2] * 2]
    assert [size[0] for size in sizes] == [3]


def test_texts_become_what_the_model_returns(tmp_path):
    texts.save_model(tmp_path)
    texts.save_tokenizer(tmp_path)
    options = ModelOptions(str(tmp_path), pooling="mean", normalize=True)
    words = texts.some_texts(3)
    with Predictor(options) as predictor:
        results = predictor.predict([{"text": text} for text in words] + [{"text": 1}])
        (again,) = predictor.predict([{"text": words[1]}])
    assert [round(float(np.linalg.norm(result["embedding"])), 3) for result in results[:3]] == [1.0] * 3
    np.testing.assert_allclose(results[1]["embedding"], again["embedding"], atol=1e-5)
    assert isinstance(results[3], InvalidInput)


def test_a_handler_takes_and_gives_objects_of_python(tmp_path):
    write(
        tmp_path,
        """
        import numpy as np

        class Handler:
            inputs = {"text": "str", "x": "int64[?]"}

            def predict(self, batch):
                return {
                    "upper": [text.upper() for text in batch["text"]],
                    "about": [{"sum": np.float32(x.sum() / 10), "none": None} for x in batch["x"]],
                    "x": batch["x"],
                    "first": batch["x"][:, 0],
                }
        """,
    )
    with Predictor(tmp_path, job="j", version="7") as predictor:
        results = predictor.predict([{"text": "zwölf", "x": [1, 2]}, {"text": "a", "x": []}])
    assert results[0]["upper"] == "ZWÖLF"
    assert results[0]["about"] == {"sum": 0.3, "none": None}
    assert (results[0]["x"].tolist(), results[0]["first"].item()) == ([1, 2], 1)
    assert isinstance(results[1], HandlerFailed)


def test_what_a_job_could_not_send_is_an_error(tmp_path):
    """So the test of a handler finds it."""
    code = """
        import numpy as np

        class Handler:
            def predict(self, batch):
                return [{"y": np.array("text") if x.sum() else object()} for x in batch["x"]]
    """
    with Predictor(write(tmp_path, code)) as predictor:
        sent, unsendable = predictor.predict([{"x": [1]}, {"x": [0]}])
    assert sent == {"y": "text"}
    assert "the outputs cannot be sent" in str(unsendable)


def test_a_record_that_fails_leaves_the_others_alone(tmp_path):
    code = """
        class Handler:
            inputs = {"x": "float32"}
            def predict(self, batch):
                if (batch["x"] < 0).any():
                    raise KeyError("lost")
                return {"y": batch["x"] * 2}
    """
    with Predictor(write(tmp_path, code)) as predictor:
        results = predictor.predict([{"x": float(x)} for x in (1, -1, 2, 3)])
    assert [result["y"].item() for result in results if isinstance(result, dict)] == [2, 4, 6]
    assert isinstance(results[1], HandlerFailed)
    # The program has the stack, from the handler's own lines on.
    assert str(results[1]) == "the handler failed in predict: KeyError: 'lost'"
    assert 'raise KeyError("lost")' in results[1].traceback


def test_a_record_that_hangs_has_a_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr("cluster_serving.job.timeouts.watched._hung", [])
    code = """
        import time

        class Handler:
            inputs = {"x": "float32"}
            def predict(self, batch):
                while (batch["x"] < 0).any():
                    time.sleep(0.01)
                return batch
    """
    write(tmp_path, code)
    with Predictor(ModelOptions(str(tmp_path), inference_timeout_s=0.5)) as predictor:
        results = predictor.predict([{"x": float(x)} for x in (1, -1, 2)])
        assert [result["x"].item() for result in (results[0], results[2])] == [1, 2]
        assert isinstance(results[1], InferenceTimeout)
        while not predictor.exhausted:
            predictor.predict([{"x": -1.0}])
        # Every record has a result, also once nothing is computed any more.
        first, second = predictor.predict([{"x": 1.0}, {"x": 2.0}])
    assert "end this process" in str(first)
    assert isinstance(second, InferenceTimeout)


def test_a_model_that_overlaps_answers_in_order(tmp_path):
    save_overlapping(tmp_path)
    records = np.ones((4, 3, 64, 64), "f4")
    records[:, 1] = np.arange(4)[:, None, None]
    with Predictor(ModelOptions(str(tmp_path), thread_per_model=2)) as predictor:
        assert predictor.overlaps
        together = predictor.predict([{"x": record} for record in records])
        alone = [predictor.predict([{"x": record}])[0] for record in records]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one["y"], other["y"], rtol=1e-4)


GENERATES = """
    class Handler:
        inputs = {"count": "int64"}

        def predict(self, batch):
            for step in range(batch["count"].max()):
                yield [{"number": step} if step < count else None for count in batch["count"]]
"""


def test_pieces_are_seen_as_they_are_made(tmp_path):
    seen = []
    with Predictor(write(tmp_path, GENERATES)) as predictor:
        results = predictor.predict([{"count": 2}, {"count": 1}], lambda at, piece: seen.append((at, piece["number"])))
        assert results == [{}, {}]
        assert seen == [(0, 0), (1, 0), (0, 1)]
        # Without a function for them, they are one answer.
        whole = predictor.predict([{"count": 2}, {"count": 1}])
    assert [result["number"].tolist() for result in whole] == [[0, 1], [0]]


def test_an_exception_of_the_program_is_its_own(tmp_path):
    def leave(position, piece):
        raise KeyboardInterrupt if position else LookupError("of the program")

    with Predictor(write(tmp_path, GENERATES)) as predictor, pytest.raises(LookupError, match="of the program"):
        predictor.predict([{"count": 2}, {"count": 1}], leave)


def test_the_device_is_that_of_the_options(tmp_path):
    save_doubling(tmp_path, 3)
    with Predictor(ModelOptions(str(tmp_path), device="auto")) as predictor:
        assert predictor.report().device
    with pytest.raises(ModelError, match="device is cuda:99"):
        Predictor(ModelOptions(str(tmp_path), device="cuda:99"))
