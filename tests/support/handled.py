"""A handler in a model folder, without Flink."""

import textwrap
from itertools import groupby

import numpy as np

from cluster_serving.client.result import read_outcome
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.job.options import BatchOptions, JobOptions, ModelOptions
from cluster_serving.job.predictor import Predictor
from cluster_serving.job.request import Request
from cluster_serving.protocol.entry import NATIVE, Entry
from cluster_serving.protocol.results import to_fields
from cluster_serving.protocol.signature import signature


def write(folder, code, name="handler.py"):
    """Write a module of a handler, which is never seen half; `code` is indented as in a test."""
    path = folder / name
    new = path.with_name(f".{path.name}.new")
    new.write_text(textwrap.dedent(code))
    new.replace(path)
    return folder


def load(folder, already_batched=False, post_processing="", padding=(), **model):
    options = JobOptions(
        "start",
        ModelOptions(str(folder), padding=tuple(dict(padding).items()), **model),
        RedisOptions("redis://localhost"),
        BatchOptions(input_already_batched=already_batched),
        post_processing=post_processing,
    )
    return Predictor.of(options)


def answers(predictor, *records):
    """The answers of records, as the job writes them; neighbours of equal signature meet in a batch."""
    requests = [Request(Entry(b"1-0", str(number), b"", NATIVE), "", record) for number, record in enumerate(records)]
    batches = [list(batch) for _, batch in groupby(requests, lambda request: signature(request.inputs))]
    return [answer for batch in batches for answer in predictor.start(batch, alone=False).answers()]


def results(predictor, *records):
    """The results that clients get, with the error of one that failed."""
    return [read_outcome(to_fields(answer.fields)) for answer in answers(predictor, *records)]


def vector(*numbers):
    return {"x": np.array(numbers, "f4")}
