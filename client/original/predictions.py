"""Predictions in the bodies of front ends: texts of the original's, and JSON values of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from cluster_serving.client.original.values import OriginalResult
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.original.arrow import ERROR_VALUE

_decode = json.JSONDecoder().raw_decode


def predicted(prediction: Any) -> OriginalResult:
    """Return one prediction as an array, as a list of arrays for several outputs, or "NaN" for a failed request.

    | front end          | prediction                                                                                |
    |--------------------|-------------------------------------------------------------------------------------------|
    | 0.10 and later     | `'{"value": text}'`, with the text `{"data":[…],"shape":[…]}` or `[[class,value][…]]`     |
    | 0.9                | `'{value=text}'`, with the text `data=[…],shape=[…];` or `[[class,value][…]]`             |
    | ours               | `{"value": […]}` or `[…]`; an object by name for several outputs; classes as objects      |

    Raises:
        ValueError: If the prediction has another form.
    """
    if isinstance(prediction, str):
        is_map = prediction.startswith("{value=")
        outputs = _of_text(prediction[len("{value=") : -1] if is_map else json.loads(prediction)["value"])
    elif isinstance(prediction, Mapping) and "error" in prediction:
        outputs = []
    else:
        value = prediction.get("value", prediction) if isinstance(prediction, Mapping) else prediction
        outputs = [_of_values(each) for each in value.values()] if isinstance(value, Mapping) else [_of_values(value)]
    return ERROR_VALUE if not outputs else outputs[0] if len(outputs) == 1 else outputs


def _of_text(text: str) -> list[Array]:
    """Return the outputs in the text of a result; none if it says that the request failed."""
    if text == ERROR_VALUE:
        return []
    if text.startswith("[["):
        # The rows of a filter have no commas between them.
        return [np.array(rows) for rows in json.loads(f"[{text.replace('][', '],[')}]")]
    outputs, at = [], 0
    while (at := text.find("data", at)) >= 0:
        data, at = _decode(text, text.index("[", at))
        shape, at = _decode(text, text.index("[", at))
        outputs.append(np.array(data).reshape(shape))
    return outputs


def _of_values(value: Any) -> Array:
    is_ranking = isinstance(value, list) and value and isinstance(value[0], Mapping)
    return np.array([[each["class"], each["prob"]] for each in value] if is_ranking else value)
