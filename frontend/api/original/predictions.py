"""The forms of predictions: plain JSON, and the texts of the original's HTTP server."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster_serving.frontend.api.original.java_floats import java_floats
from cluster_serving.frontend.options import ResponseFormat
from cluster_serving.frontend.server.http.responses import dumps
from cluster_serving.protocol.columns import Columns
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.original.arrow import ERROR_VALUE
from cluster_serving.protocol.original.texts import ranking_text, rows_text
from cluster_serving.protocol.results import Outputs
from cluster_serving.protocol.values.number_lists import own_digits


def written(outputs: Outputs | ServingError, response_format: ResponseFormat, filter_text: str = "") -> Any:
    """Return one prediction as a value for JSON.

    | format  | value                                                                                               |
    |---------|-----------------------------------------------------------------------------------------------------|
    | json    | `{"value": […]}`; of several outputs `{"value": {name: […]}}`; of `topN` `{"value": [{"class": 3,     |
    |         | "prob": 0.9}, …]}`; of an error `{"error": message, "code": code}`                                  |
    | bigdl   | text of `{"value":text}`, the inner one of `{"data":[…],"shape":[…]}`, or `[[class,value][…]]`, or    |
    |         | `NaN` for an error                                                                                  |
    | zoo-0.9 | text `{value=…}`, with `data=[…],shape=[…];`, or `[[class,value][…]]`, or `NaN` for an error          |

    The texts are the original's to the character: numbers are float32, and the rows of a filter have no commas between
    them. If `filter_text`, the `postProcessing` of the job, is a `pickTopN`, texts are lists of rows without a shape.
    """
    if response_format == "json":
        return _as_json(outputs)
    if isinstance(outputs, ServingError):
        text = ERROR_VALUE
    elif isinstance(outputs, list):
        text = "".join(map(ranking_text, outputs))
    elif filter_text.startswith("pickTopN") and all(array.dtype.kind in "biuf" for array in outputs.values()):
        text = "".join(map(rows_text, outputs.values()))
    elif response_format == "bigdl":
        text = "".join(f'{{"data":{_list(array)},"shape":{_shape(array)}}}' for array in outputs.values())
    else:
        text = "".join(f"data={_list(array)},shape={_shape(array)};" for array in outputs.values())
    return f"{{value={text}}}" if response_format == "zoo-0.9" else json.dumps({"value": text}, separators=(",", ":"))


def body(
    outcomes: Sequence[Outputs | ServingError],
    response_format: ResponseFormat,
    filter_text: str = "",
    around: Mapping[str, Any] | None = None,
) -> bytes:
    """Write the JSON object of predictions, each in the form of `written`, with further fields `around` them."""
    if isinstance(outcomes, Columns) and response_format == "json":
        predictions: list[Any] = [{"value": value} for value in values(outcomes)]
    else:
        predictions = [written(outcome, response_format, filter_text) for outcome in outcomes]
    return dumps({**(around or {}), "predictions": predictions})


def values(outputs: Sequence[Outputs]) -> list[Any]:
    """Return the values of predictions for JSON: of one output the value, of several an object by name."""
    if not isinstance(outputs, Columns):
        return [_as_json(each)["value"] for each in outputs]
    # A number by itself is no array for `_plain`.
    single = {name for name, array in outputs.arrays.items() if array.ndim == 1 and array.dtype.kind != "c"}
    plain = {name: own_digits(array) if name in single else _plain(array) for name, array in outputs.arrays.items()}
    if len(plain) == 1:
        return list(next(iter(plain.values())))
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def texts(outcomes: Sequence[Outputs], filter_text: str) -> str:
    """Write the JSON list of predictions as texts in the form `bigdl`."""
    return dumps([written(outputs, "bigdl", filter_text) for outputs in outcomes]).decode()


def _as_json(outputs: Outputs | ServingError) -> dict[str, Any]:
    if isinstance(outputs, ServingError):
        return {"error": outputs.message, "code": outputs.code}
    if isinstance(outputs, list):
        rankings = [[{"class": index, "prob": value} for index, value in ranking] for ranking in outputs]
        return {"value": rankings[0] if len(rankings) == 1 else rankings}
    plain = {name: _plain(array) for name, array in outputs.items()}
    return {"value": next(iter(plain.values())) if len(plain) == 1 else plain}


def _plain(array: Array) -> Any:
    """Return a value that orjson can write: arrays of numbers as they are, others as lists."""
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1)
    if not array.ndim or array.dtype.kind not in "biuf":
        return own_digits(array)
    dtype = np.dtype(np.float32) if array.dtype == np.float16 else array.dtype.newbyteorder("=")
    return np.ascontiguousarray(array, dtype)


def _list(array: Array) -> str:
    if array.dtype.kind in "biuf":
        return f"[{java_floats(array)}]"
    return json.dumps(array.ravel().tolist(), separators=(",", ":"))


def _shape(array: Array) -> str:
    return f"[{','.join(map(str, array.shape))}]"
