"""Tables of Arrow and frames of pandas: a column for each output of a model, and one for the errors of rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from cluster_serving.embed.columns import Scored
from cluster_serving.protocol.arrow import to_arrow
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.slots import TensorSpec, column_of
from cluster_serving.protocol.values.arrow import of_column

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
        """Inputs; empty if the model takes any inputs."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Outputs; empty if nothing tells them."""

    def scored(self, columns: Mapping[str, Any]) -> Scored:
        """Return the outputs of the rows, and the errors of rows without outputs."""


def predict_table(predictor: Model, table: pa.Table | pa.RecordBatch, inputs: Inputs | None = None) -> pa.Table:
    """Compute a table of Arrow.

    Args:
        predictor: The model.
        table: Columns of numbers, texts, images as binary, or lists of numbers, which may be nested. Values become the
            dtype of their input by the table of conversions (`protocol.values.table`); a value that it refuses fails
            its row alone.
        inputs: Columns of the inputs; those of the same names where this has none.

    Returns:
        A row for each row, with a column for each output and `error`. A row has either null outputs or a null error.
        Arrays are lists; outputs that are neither arrays nor texts are JSON.

    Raises:
        InvalidInput: If a column is missing.
        ModelError: If the model cannot be loaded.
    """
    return _predicted(predictor, table.column_names, table.column, len(table), inputs)


def predict_columns(predictor: Model, columns: Mapping[str, Any], inputs: Inputs | None = None) -> pa.Table:
    """Compute columns of equal length, which are arrays of Arrow or lists; see `predict_table`."""
    return _predicted(predictor, [*columns], columns.__getitem__, len(next(iter(columns.values()), ())), inputs)


def predict_frame(predictor: Model, frame: pd.DataFrame, inputs: Inputs | None = None) -> pd.DataFrame:
    """Compute a frame of pandas; return a frame with its index, and the columns of `predict_table`."""
    names = [str(name) for name in frame.columns]
    scored = _predicted(predictor, names, lambda name: _of_series(frame.iloc[:, names.index(name)]), len(frame), inputs)
    return scored.to_pandas().set_index(frame.index)


def predict_series(predictor: Model, columns: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Compute columns of pandas, a column for each input; see `predict_frame`."""
    count = len(next(iter(columns.values())))
    return _predicted(predictor, [*columns], lambda name: _of_series(columns[name]), count, None).to_pandas()


def _of_series(series: pd.Series) -> Any:
    """Return a column of pandas as one of Arrow, or as its values where these have no type in common."""
    try:
        return pa.Array.from_pandas(series)
    except (ValueError, TypeError, OverflowError):
        return series.tolist()


def _predicted(
    predictor: Model, names: Sequence[str], column: Callable[[str], Any], count: int, inputs: Inputs | None
) -> pa.Table:
    """Compute a table of `count` rows; `column` returns its columns by name."""
    names = [*names]
    chosen = inputs_of(predictor, names, inputs)
    for name in (name for columns in chosen.values() for name in columns if names.count(name) > 1):
        raise InvalidInput(
            f"the table has {names.count(name)} columns {name!r}; expected one: rename or drop the others"
        )
    specs = {spec.name: spec for spec in predictor.inputs}
    columns, errors = dict[str, Any](), dict[int, InvalidInput]()
    for name, sources in chosen.items():
        spec = specs.get(name, TensorSpec(name, "", None))
        found = [of_column(source, column(source), spec, len(sources) > 1) for source in sources]
        columns[name] = found[0].values if len(found) == 1 else np.stack([part.values for part in found], axis=1)
        errors = {row: error for part in reversed(found) for row, error in part.errors.items()} | errors
    rows = np.array([row for row in range(count) if row not in errors], int) if errors else np.arange(count)
    if errors:
        columns = {name: _taken(values, rows) for name, values in columns.items()}
    scored = predictor.scored(columns)
    texts = {row: f"{error.code}: {error.message}" for row, error in errors.items()}
    texts |= {int(rows[row]): f"{error.code}: {error.message}" for row, error in scored.errors.items()}
    return _output_table(scored, predictor.outputs, rows, texts, count)


def _taken(values: Any, rows: Array) -> Any:
    return values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows]


def inputs_of(predictor: Model, names: Sequence[str], inputs: Inputs | None) -> dict[str, list[str]]:
    """Return the names of the columns of each input; an input that `inputs` leaves out has the column of its name.

    Raises:
        InvalidInput: If a column is missing; the message names it, and those that are there.
    """
    own = {spec.name: column_of(spec, names) for spec in predictor.inputs}
    if inputs:
        inputs = {name: column for name, column in own.items() if column in names} | dict(inputs)
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
    nulls = pa.nulls(count, pa.string())
    return pa.table(columns | {ERROR: pa.array(map(errors.get, range(count)), pa.string()) if errors else nulls})


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
    array = to_arrow(np.ascontiguousarray(column).reshape(-1))
    for axis in range(column.ndim - 1, 0, -1):
        rows = int(np.prod(column.shape[:axis]))
        offsets = np.arange(rows + 1, dtype="int32") * column.shape[axis]
        array = pa.ListArray.from_arrays(to_arrow(offsets), array)
    return array


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, default=lambda item: item.tolist())
