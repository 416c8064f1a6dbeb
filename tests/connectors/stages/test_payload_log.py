"""The payload log: what it has of requests and answers, and what it drops."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import Answer, AnsweredBatch
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.stage import AnswerStage
from cluster_serving.connectors.stages.payload_log import places, stage
from cluster_serving.job.operators import ANSWERING
from cluster_serving.protocol import columns, tensors
from cluster_serving.protocol.entry import NATIVE, Entry
from cluster_serving.protocol.errors import InferenceFailed
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.inputs import Image, SparseTensor
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import encode_error, encode_ranked, encode_result
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def make(db, job, tmp_path):
    """Makes the stage of a slot, and closes it."""
    made = []

    def make(sample=1.0, to=str(tmp_path / "log"), without=(), **more):
        keys = {"payload_log_sample": sample, "payload_log_to": to, "payload_log_without": without}
        options = RedisOptions("", job, version="7", stages=tuple(keys.items()), **more)
        counts = Counts()
        made.append(stage.answers(db, options, RedisClock(db), counts))
        return made[-1], counts

    yield make
    for each in made:
        each.close()


def entry(number, inputs, records=b""):
    data = tensors.encode(inputs)
    return Entry(b"%d-0" % (1_700_000_000_000 + number), f"r{number}", data, NATIVE, records=records)


def answer(entry, **outputs):
    return Answer(entry, encode_result(True, [*outputs], [np.asarray(value) for value in outputs.values()]))


def batch(*answers, wait_us=1000):
    return AnsweredBatch(answers, wait_us, 2000)


def logged(made, *answers):
    """The rows of the log after these answers."""
    log, _ = made
    log.answered(batch(*answers), 500)
    log.close()
    return pd.read_parquet(log._keys.payload_log_to).sort_values(["time", "record"], ignore_index=True)


def test_the_log_has_inputs_outputs_version_and_latency(make):
    xs = np.arange(12, dtype="f4").reshape(3, 4)
    rows = logged(make(), *(answer(entry(number, {"x": x}), y=2 * x) for number, x in enumerate(xs)))
    assert rows["uri"].tolist() == ["r0", "r1", "r2"]
    assert set(rows["version"]) == {"7"} and rows["code"].isna().all()
    assert rows["latency_ms"].tolist() == [3.5] * 3
    assert rows["time"].tolist() == [pd.Timestamp(1_700_000_000_000 + n, unit="ms", tz="UTC") for n in range(3)]
    np.testing.assert_array_equal(np.stack(rows["input.x"]), xs)
    np.testing.assert_array_equal(np.stack(rows["output.y"]), 2 * xs)
    assert rows["input.x"][0].dtype == np.float32


def test_each_record_of_a_request_has_a_row(make):
    xs, ys = np.arange(6, dtype="i8").reshape(3, 2), np.array([1.5, 2.5, 3.5])
    together = answer(entry(0, {"x": xs}, b"3"), y=ys)
    results = [encode_result(True, ["y"], [np.array(8.0)]), encode_error(InferenceFailed("no"))]
    apart = Answer(entry(1, {"x": xs[:2]}, b"2"), columns.joined(results))
    failed = Answer(entry(2, {"x": xs[:2]}, b"2"), encode_error(InferenceFailed("none")))
    rows = logged(make(), together, apart, failed)
    assert rows["record"].tolist() == [0, 1, 2, 0, 1, 0, 1]
    np.testing.assert_array_equal(np.stack(rows["input.x"]), xs[[0, 1, 2, 0, 1, 0, 1]])
    assert rows["output.y"].tolist()[:4] == [1.5, 2.5, 3.5, 8] and rows["output.y"][4:].isna().all()
    assert rows["code"].tolist() == [None] * 4 + ["INFERENCE_FAILED"] * 3
    assert rows["error"].tolist()[4:] == ["no", "none", "none"]


def test_values_of_every_kind_are_logged(make):
    sparse = SparseTensor(np.array([[0, 2]]), np.array([1.0, 2.0]), (4,))
    inputs = {
        "text": np.array(["a", "b"], object),
        "image": Image(b"jpeg"),
        "sparse": sparse,
        "half": np.array([[0.5]], "f2"),
        "complex": np.array(1j),
        "empty": np.zeros((0, 2), "f4"),
    }
    ranked = Answer(entry(1, {"text": np.array("c", object)}), encode_ranked(True, ["y"], [[(3, 0.5)]]))
    (first, second) = logged(make(), answer(entry(0, inputs), y=[True]), ranked).to_dict("records")
    # Of texts and lists, a column has texts.
    assert first["input.text"] == "['a', 'b']" and second["input.text"] == "c"
    assert first["input.image"] == b"jpeg" and first["input.half"][0].tolist() == [0.5]
    found = {name: [*np.ravel(part.tolist())] for name, part in first["input.sparse"].items()}
    assert found == {"indices": [0, 2], "values": [1, 2], "shape": [4]}
    assert first["input.complex"] == "1j" and first["input.empty"].tolist() == []
    assert first["output.y"] == "[True]" and second["output.y"] == "[[3.0, 0.5]]"
    assert second["input.image"] is None


def test_records_of_different_lengths_share_a_column(make):
    xs = [np.arange(6.0).reshape(2, 3), np.zeros((0, 3)), np.ones((1, 2))]
    rows = logged(make(), *(answer(entry(number, {"x": x}), y=len(x)) for number, x in enumerate(xs)))
    assert [[each.tolist() for each in x] for x in rows["input.x"]] == [[[0, 1, 2], [3, 4, 5]], [], [[1, 1]]]


def test_a_request_whose_inputs_cannot_be_read_is_logged_with_its_error(make):
    broken = entry(0, {"x": np.zeros(2)})._replace(data=b"no arrow")
    wrong = entry(1, {"x": np.zeros(2)}, b"3")
    rows = logged(make(), *(Answer(each, encode_error(InferenceFailed("no"))) for each in (broken, wrong)))
    assert rows["code"].tolist() == ["INFERENCE_FAILED"] * 4 and "input.x" not in rows


def test_columns_can_be_left_out(make):
    made = make(without=("uri", "input.image", "output.*"))
    both = answer(entry(0, {"image": Image(b"secret"), "x": np.array(1)}), y=1, z=2)
    assert [*logged(made, both)] == ["time", "record", "version", "latency_ms", "code", "error", "input.x"]


def test_a_share_of_the_requests_is_logged(make):
    made = make(sample=0.1)
    rows = logged(made, *(answer(entry(number, {"x": np.array(number)}), y=number) for number in range(1000)))
    assert 95 <= len(rows) <= 105
    assert made[1].take() == {"payload_log_written": len(rows)}


def test_without_a_log_and_in_a_shadow_nothing_runs(make):
    for made in (make(sample=0.0), make(shadow=True)):
        assert type(made[0]) is AnswerStage


def test_what_the_thread_cannot_keep_up_with_is_dropped_and_counted(make):
    made = make()
    large = np.zeros((1 << 20) // 8)
    answers = [answer(entry(number, {"x": large}), y=1) for number in range(20)]
    rows = logged(made, *answers)
    found = made[1].take()
    assert found["payload_log_dropped"] > 0
    assert found["payload_log_written"] + found["payload_log_dropped"] == 20 == found["payload_log_dropped"] + len(rows)


def test_a_place_that_takes_nothing_costs_its_requests_alone(make, tmp_path):
    (tmp_path / "file").write_text("no folder")
    log, counts = make(to=str(tmp_path / "file"))
    log.answered(batch(answer(entry(0, {"x": np.zeros(2)}), y=1)), 0)
    log.close()
    assert counts.take() == {"payload_log_dropped": 1}


def test_files_are_written_while_requests_come_and_never_seen_half(make, monkeypatch, tmp_path):
    monkeypatch.setattr(stage, "_LONGEST_S", 0.0)
    log, _ = make()
    log.answered(batch(answer(entry(0, {"x": np.zeros(2)}), y=1)), 0)
    wait_until(lambda: list((tmp_path / "log").glob("*.parquet")))
    (file,) = (tmp_path / "log").glob("*")
    assert file.suffix == ".parquet" and pq.read_table(file).num_rows == 1


def test_a_store_is_written_through_fsspec(make):
    import fsspec

    log, counts = make(to="memory://bucket/log/")
    log.answered(batch(answer(entry(0, {"x": np.array(5)}), y=6)), 0)
    log.close()
    assert counts.take() == {"payload_log_written": 1}
    (file,) = fsspec.open_files("memory://bucket/log/*.parquet")
    with file as opened:
        assert pq.read_table(opened)["input.x"].to_pylist() == [5]


def test_a_slot_that_ends_has_its_last_requests_in_its_figures(db, job, tmp_path):
    keys = ("payload_log_sample", 1.0), ("payload_log_to", str(tmp_path / "log"))
    options = RedisOptions("", job, stages=keys)
    counts = Counts()
    stages = [make(db, options, RedisClock(db), counts) for make in ANSWERING]
    for each in stages:
        each.answered(batch(answer(entry(0, {"x": np.zeros(2)}), y=1)), 0)
    for each in stages:
        each.close()
    assert db.hget(JobKeys(job).stats(), "payload_log_written") == b"1"


def test_the_example_of_the_docs_reads_the_log(make, tmp_path, monkeypatch):
    docs = (Path(__file__).parents[3] / "docs" / "how-to" / "traces.md").read_text("utf8")
    (example,) = re.findall(r"```python\n([^`]*read_parquet.*?)```", docs, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    log, _ = make(to="payload-log")
    log.answered(batch(answer(entry(0, {"x": np.array(5)}), y=6)), 0)
    log.close()
    found = {}
    exec(example, found)  # noqa: S102
    assert list(found["rows"]["input.x"].to_numpy()) == [5]


def test_a_file_system_that_is_gone_has_no_half_file_under_its_name(tmp_path):
    """A part stays if the connection breaks, as nothing can be removed then; programs that read the log skip it."""
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    class Gone(LocalFileSystem):
        protocol = "gone"

        def pipe_file(self, path, value, **options):
            super().pipe_file(path, value[: len(value) // 2], **options)
            raise OSError("connection lost")

        def rm_file(self, path):
            raise OSError("connection lost")

    table = pa.table({"x": [1]})
    fsspec.register_implementation("gone", Gone, clobber=True)
    with pytest.raises(OSError, match="connection lost"):
        places.write(table, f"gone://{tmp_path}/log", "part")
    (part,) = (tmp_path / "log").iterdir()
    assert part.name.startswith(".part-") and part.suffix == ".part"
    places.write(table, f"file://{tmp_path}/log", "whole")
    assert len([*(tmp_path / "log").iterdir()]) == 2
    assert pq.read_table(tmp_path / "log") == table


def test_a_store_that_breaks_off_keeps_no_half_file():
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    class Breaking(MemoryFileSystem):
        protocol = "breaking"

        def pipe_file(self, path, value, **options):
            super().pipe_file(path, value[: len(value) // 2], **options)
            raise OSError("connection lost")

    fsspec.register_implementation("breaking", Breaking, clobber=True)
    with pytest.raises(OSError, match="connection lost"):
        places.write(pa.table({"x": [1]}), "breaking://half/log", "part")
    assert Breaking().find("/half") == []
