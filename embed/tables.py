"""Tables of Arrow and frames of pandas: a column for each output of a model, and one for the errors of rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from cluster_serving.embed.columns import Scored
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.slots import TensorSpec

if TYPE_CHECKING:
    import pandas as pd

ERROR = "error"
"""Column with code and message of a row that has failed."""

Inputs = Mapping[str, str | Sequence[str]]
"""Input of the model → name of its column, or of the columns whose numbers are its vector."""


class Model(Protocol):
    """What computes columns: a `Predictor`, or a job."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Inputs; empty if any are taken."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Outputs; empty if nothing tells them."""

    def scored(self, columns: Mapping[str, Any]) -> Scored:
        """Return the outputs of the rows, and the errors of those that have none."""


def predict_table(predictor: Model, table: pa.Table | pa.RecordBatch, inputs: Inputs | None = None) -> pa.Table:
    """Compute a table of Arrow.

    Args:
        predictor: The model.
        table: Columns of numbers, texts, images as binary, or lists of numbers, which may be nested.
        inputs: Columns of the inputs; those of the same names where this has none.

    Returns:
        A row for each row, with a column for each output and `error`. A row has either null outputs or a null error.
        Arrays are lists; outputs that are neither arrays nor texts are JSON.

    Raises:
        InvalidInput: If a column is missing.
        ModelError: If the model cannot be loaded.
    """
    chosen = inputs_of(predictor, table.column_names, inputs)
    names = list(dict.fromkeys(name for columns in chosen.values() for name in columns))
    needed = pa.table({name: table.column(name) for name in names})
    valid = np.ones(len(needed), bool)
    for column in needed.columns:
        if column.null_count:
            valid &= column.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(valid)
    filled = needed if len(rows) == len(needed) else needed.take(pa.array(rows))
    scored = predictor.scored({name: _joined(filled, columns) for name, columns in chosen.items()})
    errors = {int(row): f"{InvalidInput.code}: an input of this row is null" for row in np.flatnonzero(~valid)}
    errors |= {int(rows[row]): f"{error.code}: {error.message}" for row, error in scored.errors.items()}
    return _output_table(scored, predictor.outputs, rows, errors, len(needed))


def predict_frame(predictor: Model, frame: pd.DataFrame, inputs: Inputs | None = None) -> pd.DataFrame:
    """Compute a frame of pandas; return a frame with its index, and the columns of `predict_table`."""
    scored = predict_table(predictor, pa.Table.from_pandas(frame, preserve_index=False), inputs).to_pandas()
    return scored.set_index(frame.index)


def inputs_of(predictor: Model, names: Sequence[str], inputs: Inputs | None) -> dict[str, list[str]]:
    """Return the names of the columns of each input; one that `inputs` leaves out has the column of its name, if any.

    Raises:
        InvalidInput: If a column is missing; the message names it, and those that are there.
    """
    own = {spec.name: spec.name for spec in predictor.inputs}
    if inputs:
        inputs = {name: name for name in own if name in names} | dict(inputs)
    else:
        inputs = own or {name: name for name in names}
    chosen = {name: [columns] if isinstance(columns, str) else list(columns) for name, columns in inputs.items()}
    for name, columns in chosen.items():
        if missing := [column for column in columns if column not in names]:
            first = names[0] if len(names) else "a"
            given = {name: first}
            raise InvalidInput(
                f"there is no column {missing[0]!r} for the input {name!r}; the columns are {', '.join(names)}. "
                f"Say which of them are the input: --columns {name}={first}, or inputs={given}"
            )
    return chosen


def _joined(table: pa.Table, names: Sequence[str]) -> Any:
    arrays = [_from_arrow(table.column(name).combine_chunks()) for name in names]
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)


def _from_arrow(column: pa.Array | pa.ChunkedArray) -> Any:
    """Return a column without nulls; lists of equal lengths become one array."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if isinstance(column, pa.FixedShapeTensorArray):
        return column.to_numpy_ndarray()
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if isinstance(column, pa.FixedSizeListArray):
        return _nested(column.flatten(), len(column), column.type.list_size)
    if isinstance(column, pa.ListArray | pa.LargeListArray):
        sizes = column.value_lengths().to_numpy(zero_copy_only=False)
        if len(sizes) and (sizes == sizes[0]).all():
            return _nested(column.flatten(), len(column), int(sizes[0]))
        return [np.array(value) for value in column.to_pylist()]
    return column.to_numpy(zero_copy_only=False)


def _nested(values: pa.Array, rows: int, size: int) -> Any:
    flat = _from_arrow(values)
    return flat.reshape(rows, size, *flat.shape[1:]) if isinstance(flat, np.ndarray) else flat


def _output_table(
    scored: Scored, specs: Sequence[TensorSpec], rows: Array, errors: Mapping[int, str], count: int
) -> pa.Table:
    """Return outputs and errors; `rows` are those that were computed, of `count`."""
    indices = None
    if errors:
        # Positions in the outputs, or null.
        places, failed = np.zeros(count, int), np.zeros(count, bool)
        places[rows] = np.arange(len(rows))
        failed[list(errors)] = True
        indices = pa.array(places, mask=failed)
    columns = {}
    for name, kind in (dict.fromkeys(scored.outputs) | {spec.name: arrow_type(spec) for spec in specs}).items():
        if name in scored.outputs:
            column = _to_arrow(scored.outputs[name], kind)
            columns[name] = column if indices is None else column.take(indices)
        else:
            columns[name] = pa.nulls(count, kind or pa.string())
    texts = [errors.get(row) for row in range(count)] if errors else pa.nulls(count, pa.string())
    return pa.table(columns | {ERROR: pa.array(texts, pa.string())})


def arrow_type(spec: TensorSpec) -> pa.DataType | None:
    """Return the type of the column of an output; None if the model does not tell it."""
    if spec.shape is None or not spec.dtype:
        return None
    kind = pa.string() if spec.dtype == "str" else pa.from_numpy_dtype(np.dtype(spec.dtype))
    for _ in spec.shape[1:]:
        kind = pa.list_(kind)
    return kind


def _to_arrow(column: Array, kind: pa.DataType | None) -> pa.Array:
    if column.dtype == object:
        values = [value.tolist() if isinstance(value, np.ndarray) else value for value in column]
        is_text = kind is None or pa.types.is_string(kind)
        return pa.array([_text(value) for value in values], pa.string()) if is_text else pa.array(values, kind)
    array = pa.array(np.ascontiguousarray(column).reshape(-1))
    for axis in range(column.ndim - 1, 0, -1):
        rows = int(np.prod(column.shape[:axis]))
        offsets = np.arange(rows + 1, dtype="int32") * column.shape[axis]
        array = pa.ListArray.from_arrays(pa.array(offsets), array)
    return array


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, default=lambda item: item.tolist())
