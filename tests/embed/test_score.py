"""`cluster-serving-cli score`: a model over files."""

import bz2
import gzip
import json
import lzma
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from cluster_serving.client.original.values import encode_png
from cluster_serving.embed.answers import score as score_unit
from cluster_serving.embed.output import Output
from cluster_serving.embed.score import run as run_program
from cluster_serving.embed.task import Task
from cluster_serving.embed.units import find
from cluster_serving.job.models.encryption import encrypt
from cluster_serving.job.options import JobOptions, ModelOptions, RedisOptions
from cluster_serving.protocol.errors import InvalidInput, ServingError
from tests.support.fixtures.commands import BIN, run
from tests.support.fixtures.predictor import save_doubling
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

SCORE = ("score", "--output", "out", "--model", "model", "--processes", "2", "--input")


PEAK = """
import resource, sys
from cluster_serving.embed import score, units
from cluster_serving.job.options import JobOptions, ModelOptions, RedisOptions

options = JobOptions("score", ModelOptions("{folder}/model"), RedisOptions("redis://unused")).to_json()
task = score.Task("{folder}/data", "{folder}/out", {{}}, None, options)
peaks = []
for unit in sorted(units.find("{folder}/data"), key=lambda unit: unit.size):
    score.score(task, unit)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
print(*peaks)
"""
"""Program that prints the highest memory of its process, in MB, after each of the units, the smallest first."""


def command(folder, *arguments):
    """The finished command; it has to succeed."""
    done = run("cluster-serving-cli", *SCORE, *arguments, cwd=folder, environment=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def score(folder, **changes):
    """Score the files as the program does, but in a thread; return the exit code."""
    task = replace(task_of(folder), **changes)
    with ThreadPoolExecutor(1) as pool:
        return run_program(task, Output(task.output), pool)


def output(folder):
    """Rows of the output, of all files in the order of their names."""
    return [row for file in sorted((folder / "out").rglob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def task_of(folder):
    options = JobOptions("score", ModelOptions(str(folder / "model")), RedisOptions("redis://unused")).to_json()
    return Task(str(folder / "data"), str(folder / "out"), {}, None, options)


@pytest.fixture
def doubling(tmp_path):
    """A folder with a `model` that doubles three numbers, and an empty `data`."""
    save_doubling(tmp_path / "model", 3)
    (tmp_path / "data").mkdir()
    return tmp_path


def test_each_row_of_parquet_has_an_answer_or_an_error_in_its_place(doubling):
    x = [[float(row)] * (2 if row % 50 == 7 else 3) for row in range(500)]
    for name in ("a", "b"):
        table = pa.table({"id": [f"{name}{row}" for row in range(500)], "x": x})
        pq.write_table(table, doubling / "data" / f"{name}.parquet", row_group_size=200)
    done = command(doubling, "data/*.parquet")
    assert "1,000 rows in" in done.stderr and "20 of 1,000 rows have an error" in done.stderr
    rows = output(doubling)
    assert [row["id"] for row in rows] == [f"{name}{row}" for name in "ab" for row in range(500)]
    for row in rows:
        number = int(row["id"][1:])
        if number % 50 == 7:
            assert row["y"] is None and row["error"].startswith("INVALID_INPUT: input 'x' is float32[2], but")
        else:
            assert row["y"] == [2 * number] * 3 and row["error"] is None
    assert sorted(file.name for file in (doubling / "out").glob("*.parquet")) == [
        f"{name}.{group:05}.parquet" for name in "ab" for group in range(3)
    ]


def test_a_killed_command_goes_on_where_it_was_and_finished_units_stay(doubling):
    rows, group = 400_000, 2000
    x = pa.FixedSizeListArray.from_arrays(np.arange(3.0 * rows, dtype="f4"), 3)
    table = pa.table({"id": np.arange(rows), "x": x})
    pq.write_table(table, doubling / "data" / "a.parquet", row_group_size=group)
    out = doubling / "out"
    finished = {}
    for killed in range(2):
        with subprocess.Popen(
            [BIN / "cluster-serving-cli", *SCORE, "data"], cwd=doubling, stderr=subprocess.DEVNULL
        ) as killed_one:
            more = len(finished) + 5
            wait_until(lambda more=more: len([*out.glob("*.parquet")]) > more, 60)
            killed_one.send_signal(signal.SIGKILL)
        assert killed_one.returncode == -signal.SIGKILL, f"it ended before kill {killed}"
        finished = {file: file.stat().st_mtime_ns for file in out.glob("*.parquet")}
    done = command(doubling, "data")
    before = int(done.stderr.split(" of 200 units were there before")[0].split()[-1])
    assert before >= len(finished)
    assert {file: file.stat().st_mtime_ns for file in finished} == finished
    assert [row["id"] for row in output(doubling)] == [*range(rows)]
    assert not [*out.rglob("*.part")]


def test_the_memory_does_not_grow_with_the_row_groups(doubling):
    save_doubling(doubling / "model", 30)
    for name, rows in (("a", 20_000), ("b", 1_000_000)):
        x = pa.FixedSizeListArray.from_arrays(np.random.default_rng(1).random(30 * rows, "f4"), 30)
        pq.write_table(pa.table({"x": x}), doubling / "data" / f"{name}.parquet", row_group_size=rows)
    assert (doubling / "data" / "b.parquet").stat().st_size > 100 << 20
    program = PEAK.format(folder=doubling)
    ran = subprocess.run([sys.executable, "-c", program], cwd=doubling, capture_output=True, text=True, check=True)
    small, large = map(int, ran.stdout.split())
    assert large < small + 60


def test_csv_columns_are_a_vector_and_only_chosen_columns_are_copied(doubling):
    table = pa.table({"id": [1, 2], "a": [1.0, 4.0], "b": [2, 5], "c": [3, 6], "note": ["x", 'y,"z"\nw']})
    pyarrow.csv.write_csv(table, doubling / "data" / "rows.csv")
    command(doubling, "data/rows.csv", "--columns", "x=a,b,c", "--keep", "id")
    assert output(doubling) == [
        {"id": "1", "y": [2, 4, 6], "error": None},
        {"id": "2", "y": [8, 10, 12], "error": None},
    ]


def test_a_row_of_csv_that_cannot_be_read_has_an_error_in_its_place(doubling):
    lines = [
        "id,a,b,c",
        "0,1,2,3",
        "1,1,x,3",
        "2,1,2",
        "3,1,,3",
        "4,1,2,3,4",
        '"5\n", 1.5 ,2,3',
        *["6,1,2,3"] * 200_000,
    ]
    (doubling / "data" / "rows.csv").write_text("\n".join([*lines, "7,a,b,c", "8,1"]))
    assert score(doubling, inputs={"x": ["a", "b", "c"]}) == 0
    rows = output(doubling)
    assert rows[0] == {"id": "0", "y": [2, 4, 6], "error": None} and rows[5]["y"] == [3, 4, 6]
    np.testing.assert_array_equal(rows[3]["y"], [2, np.nan, 6])
    assert {row["error"] for row in rows[6:-2]} == {None} and len(rows) == 200_008
    assert [row["error"] for row in (*rows[1:5], *rows[-2:])] == [
        "INVALID_INPUT: input 'b' is 'x'; expected a number",
        "INVALID_INPUT: the row has 3 fields, and the header 4: 2,1,2",
        None,
        "INVALID_INPUT: the row has 5 fields, and the header 4: 4,1,2,3,4",
        "INVALID_INPUT: input 'a' is 'a'; expected a number",
        "INVALID_INPUT: the row has 2 fields, and the header 4: 8,1",
    ]


def test_rows_of_csv_that_cannot_be_read_are_counted_and_share_a_row_group(doubling):
    for name, rows in (("bad", "1,2,3\n" * 20_000), ("mixed", "1,2,3\n4,5\n" * 300)):
        (doubling / "data" / f"{name}.csv").write_text(f"a,b\n{rows}")
    output = Output(str(doubling / "out"))
    task = task_of(doubling)
    for unit, rows, wrong in zip(find(task.input), (20_000, 600), (20_000, 300), strict=True):
        assert score_unit(replace(task, inputs={"x": ["a", "b", "b"]}), unit) == (rows, wrong)
        assert [*output.outcomes([unit])] == [(unit, (rows, wrong))]
        assert pq.ParquetFile(output.folder + f"/{unit.name}").num_row_groups == -(-rows // 8192)


def test_a_line_of_json_may_be_long(doubling):
    line = json.dumps({"x": [1, 2, 3], "note": "n" * (3 << 20)})
    (doubling / "data" / "rows.jsonl").write_text("\n".join([line] * 3))
    (unit,) = find(str(doubling / "data"))
    assert score_unit(task_of(doubling), unit) == (3, 0)


def test_files_with_one_name_of_output_are_refused(doubling):
    for name in ("a.parquet", "a.pq"):
        pq.write_table(pa.table({"x": [1]}), doubling / "data" / name)
    with pytest.raises(InvalidInput, match=r"a\.parquet and .*a\.pq would have the same file of output, a\.00000"):
        find(str(doubling / "data"))


def test_a_claim_that_was_interrupted_does_not_block_its_folder(doubling):
    output = Output(str(doubling / "out"))
    # As if it was killed once the file was open.
    with pytest.raises(AttributeError):
        output.claim(None)
    output.claim("identity")
    with pytest.raises(ServingError, match="has the output of another input"):
        output.claim("other")
    output.tidy()
    assert [file.name for file in (doubling / "out").iterdir()] == ["_score.json"]


def test_a_line_that_is_no_json_or_of_another_type_has_an_error_in_its_place(doubling):
    lines = [json.dumps({"id": row, "x": [row, 0.5, 0]}) for row in range(1000)]
    lines[0], lines[7], lines[999] = "{", '{"id": 7, "x": "cat"}', '{"id": "end", "x": [1, 2, 3]'
    (doubling / "data" / "rows.jsonl").write_text("\n".join(lines))
    assert score(doubling) == 0
    rows = output(doubling)
    assert [row["id"] for row in rows] == [None, *range(1, 999), None]
    errors = {number: row["error"] for number, row in enumerate(rows) if row["error"]}
    assert [*errors] == [0, 7, 999]
    assert errors[7] == "INVALID_INPUT: input 'x' is 'cat'; expected a number"
    assert errors[0].startswith("INVALID_INPUT: the line cannot be read: Expecting property name")


@pytest.mark.parametrize(("name", "text"), [("rows.csv", ""), ("rows.csv", "x\n"), ("rows.jsonl", "\n")])
def test_a_file_without_rows_has_an_output_without_rows(doubling, name, text):
    (doubling / "data" / name).write_text(text)
    assert score(doubling) == 0
    assert pq.read_table(doubling / "out" / f"{name}.parquet").num_rows == 0


def test_an_output_without_rows_has_the_columns_of_the_others(doubling):
    """Readers of a folder take the columns of its first file."""
    schema = pa.schema({"id": pa.int64(), "x": pa.list_(pa.float32())})
    pq.write_table(schema.empty_table(), doubling / "data" / "0.parquet")
    pq.write_table(pa.table({"id": [7], "x": [[1.0, 2.0, 3.0]]}, schema), doubling / "data" / "1.parquet")
    with pq.ParquetWriter(doubling / "data" / "2.parquet", schema) as writer:
        writer.write_table(pa.table({"id": [8], "x": [[1.0, 2.0, 3.0]]}, schema))
        writer.write_table(schema.empty_table())
    (doubling / "data" / "3.csv").write_text("id,x")
    assert score(doubling) == 0
    assert pq.read_table(doubling / "out" / "3.csv.parquet").schema.names == ["id", "y", "error"]
    (doubling / "out" / "3.csv.parquet").unlink()
    rows = pq.read_table(doubling / "out").to_pylist()
    assert rows == [{"id": number, "y": [2, 4, 6], "error": None} for number in (7, 8)]


def test_two_commands_do_not_write_to_one_folder(doubling):
    pq.write_table(pa.table({"x": [[1.0, 2.0, 3.0]]}), doubling / "data" / "a.parquet")
    with Output(str(doubling / "out")).held():
        done = run("cluster-serving-cli", *SCORE, "data", cwd=doubling, environment=os.environ)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert (
        f"error: process {os.getpid()} on {socket.gethostname()} scores into {doubling / 'out'} at the moment"
        in done.stderr
    )


def test_a_file_system_of_fsspec_is_read_and_written(doubling):
    memory = fsspec.filesystem("memory")
    memory.pipe("/data/part/a.jsonl", b'{"x": [1, 2, 3]}\n{"x": [1]}\n')
    options = JobOptions("score", ModelOptions(str(doubling / "model")), RedisOptions("redis://unused")).to_json()
    task = Task("memory://data/*/*.jsonl", "memory://out", {}, None, options)
    (unit,) = find(task.input)
    with Output(task.output).held():
        assert score_unit(task, unit) == (2, 1)
    assert memory.find("/out") == ["/out/part/a.jsonl.parquet"]
    with memory.open("/out/part/a.jsonl.parquet") as file:
        assert pq.read_table(file)["y"].to_pylist() == [[2, 4, 6], None]


def test_a_model_that_a_job_brings_along_has_the_output_of_where_it_was(doubling, monkeypatch):
    options = JobOptions("score", ModelOptions("/elsewhere/model"), RedisOptions("redis://unused")).to_json()
    task = Task("data", "out", {}, None, options)
    brought = replace(task, at="model")
    monkeypatch.chdir(doubling)
    assert brought.model().inputs[0].name == "x" and brought.identity == task.identity


def test_the_secret_of_an_encrypted_model_is_that_of_the_configuration(doubling):
    for file in (doubling / "model").iterdir():
        file.write_bytes(encrypt(file.read_bytes(), "secret", "salt"))
    pq.write_table(pa.table({"x": [[1.0, 2.0, 3.0]]}), doubling / "data" / "a.parquet")
    (doubling / "config.yaml").write_text("modelPath: model\nmodelEncrypted: true\n")
    environment = os.environ | {"CLUSTER_SERVING_MODEL_SECRET": "secret:salt"}
    done = run("cluster-serving-cli", *SCORE, "data", cwd=doubling, environment=environment)
    assert done.returncode == 0, done.stderr
    assert [row["y"] for row in output(doubling)] == [[2, 4, 6]]


def test_lines_of_json_are_read_to_the_last_one(doubling):
    lines = [json.dumps({"x": [row, 0.5, 0], "note": "n" * 3000}) for row in range(3000)]
    (doubling / "data" / "rows.jsonl").write_text("\n".join(lines))
    # The output is in a folder of the input.
    for _ in range(2):
        assert score(doubling, input=str(doubling), keep=[]) == 0
    assert [row["y"] for row in output(doubling)] == [[2 * row, 1, 0] for row in range(3000)]


def test_images_of_a_folder_are_scored_and_damaged_ones_named(tmp_path):
    model_zoo.save_openvino_digit_images(tmp_path / "model")
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for number in range(70):
        picture = encode_png("x", np.full((8, 8, 3), number, np.uint8)).data
        (tmp_path / "photos" / "more" / f"{number:02}.png").write_bytes(picture[:40] if number == 5 else picture)
    assert score(tmp_path, input=str(tmp_path / "photos")) == 0
    rows = output(tmp_path)
    assert [os.path.basename(row["path"]) for row in rows] == [f"{number:02}.png" for number in range(70)]
    assert [number for number, row in enumerate(rows) if row["error"]] == [5]


def test_another_model_does_not_mix_its_answers_with_those_of_the_first(doubling):
    (doubling / "data" / "a.jsonl").write_text('{"x": [1, 2, 3]}')
    # An input without files leaves the folder to the next command.
    with pytest.raises(InvalidInput, match="there is no file to score at nothing"):
        score(doubling, input="nothing/*.csv")
    assert score(doubling) == 0
    save_doubling(doubling / "other", 3)
    options = JobOptions("score", ModelOptions(str(doubling / "other")), RedisOptions("redis://unused")).to_json()
    with pytest.raises(ServingError, match="out has the output of another input, model or configuration; choose"):
        score(doubling, options=options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("nothing/*.csv",),
            "error: there is no file to score at nothing/*.csv; files of these types are read: .parquet, ",
        ),
        (("data", "--columns", "x"), "--columns x: expected INPUT=COLUMN"),
        (("model/*.csv", "--output", "model"), "error: all files of model/*.csv are in the folder of the output"),
        (("data", "--job", "a", "--flink"), "--job has a model and a Flink already; leave out --model and --flink"),
    ],
)
def test_what_is_wrong_is_one_line(doubling, arguments, message):
    (doubling / "model" / "a.csv").touch()
    done = run("cluster-serving-cli", *SCORE, *arguments, cwd=doubling, environment=os.environ)
    assert done.returncode != 0 and message in done.stderr and "Traceback" not in done.stderr


def test_a_file_that_cannot_be_read_is_one_line_and_the_others_are_scored(doubling, capsys):
    data = doubling / "data"
    (data / "a.jsonl").write_text('{"x": [1, 2, 3]}')
    pq.write_table(pa.table({"z": [1]}), data / "b.parquet")
    (data / "c.parquet").write_bytes(b"PAR1 and no more")
    (data / "d.csv").write_text("x,x\n1,2\n")
    (data / "e.csv").write_bytes("x\n1\n".encode("utf-16"))
    (data / "f.json").write_text('[{"x": [1, 2, 3]}]')
    (data / "g.csv.gz").write_text("not compressed")
    (data / "h.csv").write_text("y" * 200_000 + "\n1\n")
    assert score(doubling) == 1
    lines = dict(
        line.removeprefix(f"error: {data}/").split(": ", 1) for line in capsys.readouterr().err.splitlines()[:7]
    )
    messages = {
        "b.parquet (row group 0)": "there is no column 'x' for the input 'x'; the columns are z.",
        "c.parquet": "Parquet magic bytes not found in footer.",
        "d.csv": "there are 2 columns 'x'; expected one: rename the others",
        "e.csv": "the file is UTF-16; expected UTF-8",
        "f.json": "the file is an array; expected a line for each row",
        "g.csv.gz": "zlib inflate failed",
        "h.csv": "the header cannot be read",
    }
    assert [*lines] == [*messages]
    assert all(lines[name].startswith(message) for name, message in messages.items()), lines
    assert [row["y"] for row in output(doubling)] == [[2, 4, 6]]


def test_texts_are_read_however_they_are_compressed_and_others_are_named(doubling, capsys):
    data, lines = doubling / "data", b"a,b,c\n1,2,3\n"
    task = replace(task_of(doubling), inputs={"x": ["a", "b", "c"]})
    packed = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
    packed |= {end: pa.Codec(name).compress for end, name in (("zst", "zstd"), ("lz4", "lz4"))}
    for end, compress in packed.items():
        (data / f"a.csv.{end}").write_bytes(bytes(compress(lines)))
    assert [score_unit(task, unit) for unit in find(task.input)] == [(1, 0)] * 5
    (data / "b.jsonl.xz").write_bytes(lzma.compress(b'{"x": [1, 2, 3]}')[:-9])
    assert score(doubling) == 1
    assert "b.jsonl.xz: " in capsys.readouterr().err
    (data / "c.csv.zip").write_bytes(b"PK")
    with pytest.raises(InvalidInput, match=r"c.csv.zip is not read: unpack it, or compress it as one of .gz, .bz2"):
        find(task.input)


def test_a_folder_where_nothing_could_be_scored_takes_the_corrected_command(doubling, capsys):
    pq.write_table(pa.table({name: [1.0] for name in "abc"}), doubling / "data" / "a.parquet")
    assert score(doubling) == 1 and "0 rows" in capsys.readouterr().err
    assert score(doubling, inputs={"x": ["a", "b", "c"]}) == 0
    assert [row["y"] for row in output(doubling)] == [[2, 2, 2]]


def test_copied_columns_stay_as_they_were_and_only_data_files_are_read(doubling):
    data = doubling / "data"
    (data / "day=2026-01-02").mkdir()
    (data / "_temporary").mkdir()
    head = "zip,id,when,y,error,name,a,b,c"
    rows = "00123,12345678901234567890,2020-01-02 03:04,7,no,caf\xe9,1,2,\n0,1,,,,x,True,1.0,NA\nshort\n"
    (data / "a.csv").write_bytes(f"{head}\n{rows}".encode("latin-1"))
    (data / "b.csv.gz").write_bytes(gzip.compress(b"a,b,c\n1,2,3\n"))
    (data / "c.tsv").write_text("a\tb\tc\n1\t2\t3\n")
    (data / "day=2026-01-02" / "e.jsonl").write_text('{"a": 1, "b": null, "c": "3"}\n')
    late = pa.array([253370764800000000], pa.timestamp("us"))
    table = pa.table({"a": [1], "b": [2], "c": [3], "t": late, "unread": [1]})
    pq.write_table(table, data / "f.parquet", use_deprecated_int96_timestamps=True)
    for name in ("_temporary/d.csv", ".hidden.csv", "_SUCCESS.csv"):
        (data / name).write_text("a,b,c\n")
    task = replace(task_of(doubling), inputs={"x": ["a", "b", "c"]})
    units = find(task.input)
    names = ["a.csv", "b.csv.gz", "c.tsv", "day=2026-01-02/e.jsonl", "f.00000"]
    assert [unit.name for unit in units] == [f"{name}.parquet" for name in names]
    assert [score_unit(task, unit) for unit in units] == [(3, 1), (1, 0), (1, 0), (1, 0), (1, 0)]
    folder = Output(task.output)
    assert [outcome for _, outcome in folder.outcomes(units)] == [(3, 1), (1, 0), (1, 0), (1, 0), (1, 0)]
    first, second, third = pq.read_table(doubling / "out" / "a.csv.parquet").to_pylist()
    copied = {"zip": "00123", "id": "12345678901234567890", "when": "2020-01-02 03:04", "y": "7", "error": "no"}
    assert {name: first[name] for name in copied} == copied and first["name"] == "caf\xe9"
    np.testing.assert_array_equal([first["model.y"], second["model.y"]], [[2, 4, np.nan], [2, 2, np.nan]])
    assert first["model.error"] is None and third["model.error"].startswith("INVALID_INPUT: the row has 1 fields")
    (of_day,) = pq.read_table(doubling / "out" / names[3].replace("jsonl", "jsonl.parquet")).to_pylist()
    assert of_day["day"] == "2026-01-02"
    assert pq.read_table(doubling / "out" / "f.00000.parquet")["t"].to_pylist() == late.to_pylist()


def test_values_of_json_lines_stay_as_they_are(doubling):
    values = ["2020-01-02 03:04:05", 9007199254740993, 12345678901234567890, 1.5, None, "caf\xe9", {"at": "2020-01-02"}]
    names = ("time", "id", "large", "price", "none", "text", "map")
    first = dict(zip(names, values, strict=True)) | {"x": [1, 2, 3]}
    # The types of later rows are others, beyond what is read at once.
    rows = [first, *[{"x": [1, 2, 3], "id": row, "price": row, "text": "t" * 3000} for row in range(2000)]]
    rows += [{"x": [1, 2, 3], "none": 7, "text": 8, "map": {"at": "x", "n": [1]}, "new": True}, {"x": "cat"}, {}]
    (doubling / "data" / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert score(doubling) == 0
    found = output(doubling)
    written = {"time": values[0], "id": values[1], "large": str(values[2]), "price": 1.5, "none": None, "new": None}
    written |= {"text": '"caf\xe9"', "map": {"at": "2020-01-02", "n": None}}
    assert {name: found[0][name] for name in written} == written and found[0]["y"] == [2, 4, 6]
    assert [row["id"] for row in found[1:2001]] == [*range(2000)] and found[2000]["price"] == 1999.0
    assert (found[2001]["none"], found[2001]["text"], found[2001]["new"]) == (7, "8", True)
    assert found[2001]["map"] == {"at": "x", "n": [1]}
    assert [row["error"] for row in found[2001:]] == [
        None,
        "INVALID_INPUT: input 'x' is 'cat'; expected a number",
        "INVALID_INPUT: input 'x' is null; expected a list of values",
    ]


def test_lines_that_are_no_row_have_an_error_in_their_place(doubling):
    lines = ["17", '{"x": 1}{"x": 2}', '{"x": [1, 2, 3]} 4', "[" * 1500, '{"x": 1, "x": 2}', '{"k": "\\ud800"}']
    lines = [
        '{"x": [1, 2, 3]}',
        *lines,
        '{"k": ' * 1500 + "1" + "} " * 1500,
        '{"k": 1e999}',
        "",
        '{"x": [1, 2, 3], "k": 0.1234567890123456789}',
    ]
    (doubling / "data" / "a.jsonl").write_bytes("\r\n".join(lines).encode("utf-8-sig") + b'\n{"k": "\xe9"}')
    score(doubling)
    found = output(doubling)
    reasons = ["expected an object", "Extra data", "Extra data", "too many brackets", "'x' is there twice"]
    reasons += [
        "'utf-8' codec can't encode",
        "too many brackets",
        "1e999 is beyond float64",
        "'utf-8' codec can't decode",
    ]
    errors = [row["error"] for row in found if row["error"]]
    assert len(found) == 11 and len(errors) == len(reasons)
    for error, reason in zip(errors, reasons, strict=True):
        assert error.startswith(f"INVALID_INPUT: the line cannot be read: {reason}")
    assert [row["y"] for row in found if row["y"]] == [[2, 4, 6]] * 2 and found[9]["k"] == 0.1234567890123456789


def test_only_the_columns_of_the_model_are_read_if_none_is_copied(doubling, monkeypatch):
    chosen, read = [], pq.ParquetFile.iter_batches

    def noted(file, *rows, columns, **options):
        chosen.append(columns)
        return read(file, *rows, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    (doubling / "data" / "day=5").mkdir()
    table = pa.table({name: pa.array([1.0]) for name in ("a", "b", *(f"c{number}" for number in range(1500)))})
    pq.write_table(table, doubling / "data" / "day=5" / "a.parquet")
    assert score(doubling, inputs={"x": ["a", "b", "day"]}, keep=["c7", "day"]) == 0
    assert chosen == [["a", "b", "c7"]]
    assert output(doubling) == [{"c7": 1, "day": "5", "y": [2, 2, 10], "error": None}]


@pytest.mark.parametrize(
    ("rows", "max_errors", "code"),
    [("1,2\ncat,2\n", None, 0), ("1,2\ncat,2\n", 0, 1), ("cat,2\n1,dog\ncat,2\n", None, 1)],
)
def test_the_exit_code_follows_the_rows_with_errors_also_when_they_were_there_before(
    doubling, capsys, rows, max_errors, code
):
    (doubling / "data" / "a.csv").write_text(f"a,b\n{rows}")
    for _ in range(2):
        assert score(doubling, inputs={"x": ["a", "a", "b"]}, max_errors=max_errors) == code
        told = capsys.readouterr().err
        assert f"\n{rows.count('cat')} rows: INVALID_INPUT: input 'a' is …; expected a number\n" in told
        assert "0 could not be scored" in told
    assert "0 rows in" in told and "1 of 1 units were there before" in told


def test_a_few_rows_need_no_measurement_of_the_layout(doubling, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(doubling / "home"))
    (doubling / "data" / "a.csv").write_text("a,b\n1,2\nx,2\n")
    arguments = ("score", "--output", "out", "--model", "model", "--input", "data", "--columns", "x=a,a,b")
    done = run("cluster-serving-cli", *arguments, "--max-errors", "0", cwd=doubling, environment=os.environ)
    assert done.returncode == 1 and "1 of 2 rows have an error" in done.stderr, done.stderr
    assert "Measuring" not in done.stdout + done.stderr and not (doubling / "home").exists()
