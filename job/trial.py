"""A model folder in the foreground, without Flink and Redis: for tests of handlers, and `cluster-serving-cli try`."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.job.options import JobOptions, ModelOptions, RedisOptions
from cluster_serving.job.predictor import load_predictor
from cluster_serving.job.request import Request
from cluster_serving.protocol.entry import NATIVE, Entry
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ServingError
from cluster_serving.protocol.inputs import Image, Input, SparseTensor
from cluster_serving.protocol.results import decode_outputs, to_fields
from cluster_serving.protocol.slots import SlotReport

__all__ = ["InferenceFailed", "InvalidInput", "Trial"]


class Trial:
    """A loaded model folder, with its handler if it has one.

    Args:
        model: Path of the folder, or all options of a job.

    Raises:
        ModelError: If model or handler cannot be loaded; the cause is the exception of the handler.
    """

    def __init__(self, model: str | Path | JobOptions) -> None:
        options = model
        if not isinstance(options, JobOptions):
            folder = str(Path(options).absolute())
            options = JobOptions(uuid.uuid4().hex, ModelOptions(folder), RedisOptions("redis://localhost"))
        self._predictor = load_predictor(options)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, **inputs: object) -> dict[str, Any]:
        """Compute one record; see `convert` for the inputs.

        Returns:
            Name → array, `str`, or the object of JSON; a ranking of `topN` has the name of its number.

        Raises:
            InvalidInput: If the inputs are refused.
            InferenceFailed: If the model or the handler fails; the message has the stack of the handler.
        """
        outcome, stack = self.compute({name: convert(value) for name, value in inputs.items()})
        if isinstance(outcome, ServingError):
            raise InferenceFailed(f"{outcome}\n{stack}") if stack else outcome
        return outcome

    def compute(self, inputs: dict[str, Input]) -> tuple[dict[str, Any] | ServingError, str]:
        """Return the outputs of one record or its error, and the stack of the handler's exception, if it raised one."""
        request = Request(Entry(b"0-0", "trial", b"", NATIVE), "", inputs)
        (answer,) = self._predictor.start([request], alone=True).answers()
        try:
            outputs = decode_outputs(to_fields(answer.fields))
        except ServingError as error:
            return error, answer.letter.traceback if answer.letter else ""
        if isinstance(outputs, list):
            return {str(index): ranking for index, ranking in enumerate(outputs)}, ""
        return {
            name: array if array.ndim or array.dtype != object else array.item() for name, array in outputs.items()
        }, ""

    def report(self) -> SlotReport:
        """Return the description of the model."""
        return self._predictor.report()

    def close(self) -> None:
        """Unload the handler and its models."""
        self._predictor.close()


def convert(value: object) -> Input:
    """Return an input: an array or nested list of numbers or texts, a number, a text, bytes or a `Path` of an image."""
    if isinstance(value, Image | SparseTensor):
        return value
    if isinstance(value, Path):
        return Image(value.read_bytes())
    if isinstance(value, bytes):
        return Image(value)
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "U" else array
