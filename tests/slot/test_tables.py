"""Tables of numbers, categories, texts and holes: every door answers as the class that trained the model."""

import json

import grpc
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster_serving import Predictor
from cluster_serving.embed.score import score
from cluster_serving.embed.tables import predict_frame, predict_table
from cluster_serving.embed.task import Task
from cluster_serving.embed.units import find
from cluster_serving.frontend.proto import inference
from cluster_serving.job.options import JobOptions, ModelOptions, RedisOptions
from tests.support.fixtures.grpc_calls import caller
from tests.support.payloads.trained import cat, lgbm, scikit, xgb
from tests.support.payloads.trained.model import records

ROWS = 12

MODELS = {
    "classes": (xgb, "XGBClassifier multi:softprob classes mixed model.ubj"),
    "number": (lgbm, "LGBMRegressor poisson gbdt mixed"),
    "labels": (cat, "CatBoostClassifier MultiLogloss labels mixed"),
    "pipeline": (scikit, "LogisticRegression of a frame"),
}


class Door:
    """The doors to a job and to its model in a folder.

    Attributes:
        rows: The rows that are asked for, with holes in each column that may have some.
    """

    def __init__(self, job, queue, front, folder, rows):
        self.job, self.queue, self.front, self.folder, self.rows = job, queue, front, folder, rows
        self.records = records(rows)

    def python(self, names):
        return [{name: each[name] for name in names} for each in self.queue.predict_many(self.records)]

    def original(self):
        answer = self.front.post(f"/models/{self.job}/predict", json={"instances": self.records})
        return [each.get("value", each) for each in answer.raise_for_status().json()["predictions"]]

    def v1(self):
        answer = self.front.post(f"/v1/models/{self.job}:predict", json={"instances": self.records})
        return answer.raise_for_status().json()["predictions"]

    def v2(self):
        inputs = [
            {"name": name, "datatype": datatype, "shape": [len(values)], "data": values}
            for name, datatype, values in self._columns()
        ]
        answer = self.front.post(f"/v2/models/{self.job}/infer", json={"inputs": inputs}).raise_for_status().json()
        found = {each["name"]: np.reshape(each["data"], each["shape"]) for each in answer["outputs"]}
        return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]

    def grpc(self, channel):
        request = inference.ModelInferRequest(model_name=self.job)
        for name, datatype, values in self._columns():
            tensor = request.inputs.add(name=name, datatype=datatype, shape=[len(values)])
            if datatype == "BYTES":
                tensor.contents.bytes_contents.extend(value.encode() for value in values)
            else:
                tensor.contents.fp64_contents.extend(np.nan if value is None else value for value in values)
        answer = caller(channel, "inference.GRPCInferenceService")("ModelInfer", request, inference.ModelInferResponse)
        found = {each.name: _contents(each) for each in answer.outputs}
        return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]

    def frame(self):
        return _good(predict_frame(Predictor(self.folder), self.rows).to_dict("records"))

    def arrow(self):
        return _good(predict_table(Predictor(self.folder), pa.Table.from_pandas(self.rows)).to_pylist())

    def file(self, path, write):
        path.parent.mkdir()
        write(path)
        out = path.parent.with_name(path.parent.name + "-out")
        options = JobOptions("score", ModelOptions(str(self.folder)), RedisOptions("redis://unused")).to_json()
        (unit,) = find(str(path.parent))
        score(Task(str(path.parent), str(out), {}, None, options), unit)
        return _good([row for file in out.rglob("*.parquet") for row in pq.read_table(file).to_pylist()])

    def _columns(self):
        for name in self.records[0]:
            values = [record[name] for record in self.records]
            is_text = any(isinstance(value, str) for value in values)
            yield name, "BYTES" if is_text else "FP64", values


def _contents(tensor):
    fields = {"INT64": "int64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents"}
    return np.reshape(getattr(tensor.contents, fields[tensor.datatype]), tensor.shape)


def _good(rows):
    assert [row["error"] for row in rows] == [None] * len(rows)
    return rows


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", MODELS)
def test_every_door_answers_as_the_class(served, front, front_end, tmp_path, task):
    module, name = MODELS[task]
    (case,) = [case for case in module.cases() if case.name == name]
    trained = case.train()
    (tmp_path / "model").mkdir()
    trained.save(tmp_path / "model")
    queue, _ = served(jobName=f"table-{task}", modelPath=tmp_path / "model", maxBatchSize=8)
    rows = trained.rows[:ROWS]
    door = Door(f"table-{task}", queue, front, tmp_path / "model", rows)
    # CSV has neither types nor a difference between an empty text and a missing one.
    plain = pd.DataFrame(door.records)
    expected = trained.answers(rows)
    answers = {
        "python": door.python(expected),
        "original": door.original(),
        "v1": door.v1(),
        "v2": door.v2(),
        "frame": door.frame(),
        "arrow": door.arrow(),
        "json lines": door.file(tmp_path / "lines" / "a.jsonl", lambda path: path.write_text(lines(door.records))),
        "parquet": door.file(tmp_path / "parquet" / "a.parquet", lambda path: rows.to_parquet(path)),
    }
    if task != "labels":
        answers["csv"] = door.file(tmp_path / "csv" / "a.csv", lambda path: plain.to_csv(path, index=False))
    for name, found in answers.items():
        check(name, found, expected)
    # Bytes of gRPC have no place for a missing text.
    whole = rows[[all(isinstance(record[name], str) for name in ("size", "colour")) for record in door.records]]
    with grpc.insecure_channel(front_end.grpc) as channel:
        found = Door(door.job, queue, front, door.folder, whole).grpc(channel)
    check("grpc", found, trained.answers(whole))


def check(door, found, expected):
    """Compare the answers of a door; a single output may come without its name."""
    for name, values in expected.items():
        told = [row[name] if isinstance(row, dict) else row for row in found]
        np.testing.assert_allclose(np.array(told, float), np.array(values, float), rtol=1e-5, err_msg=f"{door}: {name}")
