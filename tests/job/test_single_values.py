"""A number or a text is one record of a model of [?, 1], whichever client sends it."""

import json

import numpy as np
import pytest

from cluster_serving.client.sending.convert import inputs_of, to_inputs
from cluster_serving.client.sending.texts import TextInputs
from cluster_serving.frontend.api.original import instances
from cluster_serving.frontend.api.v2.batch import to_records
from cluster_serving.job.programs.dev_runner import read_inputs
from cluster_serving.job.trial import Trial
from cluster_serving.protocol.tensors import decode

HANDLER = """
class Handler:
    inputs = {"age": "float32[1]", "city": "str[1]", "level": "int64[1, 1]"}

    def predict(self, batch):
        return {name: batch[name] for name in batch}
"""
VALUES = {"age": 30.5, "city": "Bern", "level": 3}


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    (folder / "handler.py").write_text(HANDLER)
    with Trial(folder) as trial:
        yield trial


def of_python(report):
    texts = TextInputs()
    texts.learn({"0": report.to_json()})
    return to_inputs(texts.applied(inputs_of(VALUES)))


def of_http(report):
    (record,) = instances.read(json.dumps({"instances": [VALUES]}).encode(), 1, report)
    return decode(record.data)[1]


def of_v2(report):
    tensors = {"age": np.array([30.5], "f4"), "city": np.array([b"Bern"], object), "level": np.array([3])}
    return to_records(tensors, report, 1).records[0]


def of_try(report):
    return read_inputs([f"{name}={value}" for name, value in VALUES.items()], report.inputs)


def of_a_test(report):
    return VALUES


@pytest.mark.parametrize("door", [of_python, of_http, of_v2, of_try, of_a_test])
def test_single_values_get_the_dimensions_of_the_model(trial, door):
    answer = trial(**door(trial.report()))
    assert {name: array.tolist() for name, array in answer.items()} == {
        "age": [30.5],
        "city": ["Bern"],
        "level": [[3]],
    }
