"""A model in a Flink job: `predict` for a DataStream, and `function` for Table API and SQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from pyflink.common import Row, Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, DataStream, OutputTag, ProcessFunction, RuntimeContext
from pyflink.table.types import DataType, DataTypes, from_arrow_type
from pyflink.table.udf import udf

from cluster_serving.embed.predictor import Predictor
from cluster_serving.embed.tables import ERROR, arrow_type, predict_series
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.slots import TensorSpec

if TYPE_CHECKING:
    import pandas as pd

Inputs = Callable[[Any], Mapping[str, Any]]

_FAILED = "failed"
_ANYTHING = Types.PICKLED_BYTE_ARRAY()


class Predicted(NamedTuple):
    """The streams of `predict`.

    Attributes:
        answered: Elements with their outputs: `(element, {name: array})`.
        failed: Elements without outputs, with their errors: `(element, code, message)`.
    """

    answered: DataStream
    failed: DataStream


def fields(element: Any) -> Mapping[str, Any]:
    """Return the fields of a `Row` with names, or of a dict, by name."""
    return element.as_dict() if isinstance(element, Row) else element  # type: ignore[no-any-return]


def predict(
    stream: DataStream,
    predictor: Predictor,
    inputs: Inputs = fields,
    *,
    max_batch_size: int = 32,
    timeout_ms: int = 10,
) -> Predicted:
    """Add the outputs of a model to the elements of a stream.

    An element waits for `timeout_ms` at most, until `max_batch_size` of them are there. Elements keep their order, time
    stamps and place among the watermarks. Before a checkpoint the elements that were read are answered, so the
    operator has no state, and the job is exactly-once if its source and its sink are.

    The operator is Flink's asynchronous one, which PyFlink has in process mode (`python.execution-mode`) only.

    Args:
        stream: Elements of any type.
        predictor: The model; each process that runs Python functions loads it once.
        inputs: Returns the inputs of an element by name; an exception fails the job.
        max_batch_size: Most elements that wait for each other.
        timeout_ms: Longest wait of an element, in milliseconds.

    Returns:
        The stream of elements with outputs, and that of elements with an error. If the model cannot be loaded, the job
        fails.
    """
    batches = _Batches(predictor, inputs, max_batch_size, timeout_ms / 1000)
    # Twice as many elements as a batch has, so that one fills while another is computed.
    outcomes = AsyncDataStream.ordered_wait(stream, batches, Time.milliseconds(0), 2 * max_batch_size, _ANYTHING)
    answered = outcomes.process(_Split(), _ANYTHING).name("Predictions")
    return Predicted(answered, answered.get_side_output(OutputTag(_FAILED, _ANYTHING)))


def function(predictor: Predictor, *, errors: bool = False, result_type: DataType | None = None) -> Any:
    """Return a vectorised function for Table API and SQL, whose arguments are the inputs of the model, in order.

    The result is the model's output, or a ROW of all outputs. A row that fails gives NULL.

    Args:
        predictor: The model, which is loaded here for the names and types of its outputs.
        errors: Make the result a ROW whose last field `error` has code and message of a row that has failed.
        result_type: Type of the result, where the model does not tell.

    Raises:
        ModelError: If the model cannot be loaded.
        ValueError: If SQL has no type for an output.
    """
    names = [spec.name for spec in predictor.outputs] + [ERROR] * errors
    if result_type is None:
        types = [*map(_sql_type, predictor.outputs), *([DataTypes.STRING()] if errors else [])]
        row = DataTypes.ROW([DataTypes.FIELD(name, kind) for name, kind in zip(names, types, strict=True)])
        result_type = types[0] if len(types) == 1 else row
    return udf(_Vectorised(predictor, names), result_type=result_type, func_type="pandas")


def _sql_type(spec: TensorSpec) -> DataType:
    try:
        return from_arrow_type(arrow_type(spec))
    except (TypeError, AttributeError):
        raise ValueError(f"SQL has no type for the output {spec}; give the function a result_type") from None


class _Batches(AsyncFunction):
    """Gathers elements that are processed at the same time, and computes them together beside the event loop."""

    def __init__(self, predictor: Predictor, inputs: Inputs, size: int, timeout: float) -> None:
        self._predictor, self._inputs, self._size, self._timeout = predictor, inputs, size, timeout

    def open(self, runtime_context: RuntimeContext) -> None:
        """Start empty."""
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, "predictor")

    def close(self) -> None:
        """End the thread that computes."""
        self._thread.shutdown(wait=False)

    async def async_invoke(self, value: Any) -> list[Any]:
        """Return element and outcome, when its batch is computed."""
        loop = asyncio.get_running_loop()
        outcome = loop.create_future()
        self._waiting.append((value, outcome))
        if len(self._waiting) >= self._size:
            self._compute(loop)
        elif self._timer is None:
            self._timer = loop.call_later(self._timeout, self._compute, loop)
        return [(value, await outcome)]

    def _compute(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        batch, self._waiting, self._timer = self._waiting, [], None
        elements = [element for element, _ in batch]
        computed = loop.run_in_executor(self._thread, self._predict, elements)
        computed.add_done_callback(lambda done: _share(done, [outcome for _, outcome in batch]))

    def _predict(self, elements: list[Any]) -> list[Any]:
        return self._predictor.records([self._inputs(element) for element in elements])


def _share(done: asyncio.Future[list[Any]], outcomes: list[asyncio.Future[Any]]) -> None:
    error = done.exception()
    for index, outcome in enumerate(outcomes):
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result()[index])


class _Split(ProcessFunction):
    """Sends elements with an error to the side output."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        """Take an element and its outcome."""
        element, outcome = value
        if isinstance(outcome, ServingError):
            yield OutputTag(_FAILED, _ANYTHING), (element, outcome.code, outcome.message)
        else:
            yield value


class _Vectorised:
    """Computes columns of pandas."""

    def __init__(self, predictor: Predictor, names: list[str]) -> None:
        self._predictor, self._names = predictor, names
        self.__name__ = "predict"

    def __call__(self, *columns: pd.Series) -> pd.Series | pd.DataFrame:
        """Return the outputs, with NULL where a row has failed."""
        inputs = [spec.name for spec in self._predictor.inputs]
        found = predict_series(self._predictor, dict(zip(inputs, columns, strict=True)))[self._names]
        return found if len(self._names) > 1 else found[self._names[0]]
