"""Records in columns: the records of an entry are computed as rows, without an object of Python for each of them."""

from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import Any

import numpy as np

from cluster_serving.job.batch import SuspectItem, attempt
from cluster_serving.job.computation import Answerable
from cluster_serving.job.preprocessing import Preprocessor
from cluster_serving.job.servable import Caller
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.inputs import Input


def compute(requests: Sequence[Answerable[Any]], preprocessor: Preprocessor, call: Caller) -> list[Any] | ServingError:
    """Compute requests in one call of the model; return the outputs of each, or the failure of the call.

    Raises:
        ServingError: If a record cannot be a row, or is wrong; nothing was computed.
    """
    records = [preprocessor.prepare(_in_rows(request)) for request in requests]
    count = sum(request.rows or 1 for request in requests)
    (outcome,) = attempt(lambda items: [call(methodcaller("compute", items[0], True), count)], [records])
    if isinstance(outcome, list):
        return [
            (names, arrays if request.rows else [array[0, ...] for array in arrays])
            for request, (names, arrays) in zip(requests, outcome, strict=True)
        ]
    failure: ServingError = outcome.error if isinstance(outcome, SuspectItem) else outcome
    return failure


def _in_rows(request: Answerable[Any]) -> Mapping[str, Input]:
    """Return the inputs of a request, with its records along a first dimension."""
    if request.error is not None:
        raise request.error
    if request.rows:
        return request.inputs
    if not all(isinstance(value, np.ndarray) for value in request.inputs.values()):
        raise InvalidInput("images and sparse tensors are prepared one by one")
    values: Mapping[str, Any] = request.inputs
    return {name: value[np.newaxis] for name, value in values.items()}
