"""A model in Spark (`predict_batch_udf`) and Daft; Ray Data takes the class `Predictor` as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from cluster_serving.embed.columns import Columns
from cluster_serving.embed.predictor import Predictor
from cluster_serving.embed.tables import predict_table


def for_spark(predictor: Predictor) -> Callable[[], Callable[..., Any]]:
    """Return the `make_predict_fn` of Spark's `predict_batch_udf`, whose columns are the inputs in their order.

    A single output is an array; several are a dict of arrays, for a return type of a struct.
    """

    def make_predict_fn() -> Callable[..., Any]:
        names = [spec.name for spec in predictor.inputs]

        def predict(*columns: Any) -> Any:
            outputs: Columns = predictor(dict(zip(names, columns, strict=True)))
            return outputs if len(outputs) > 1 else next(iter(outputs.values()))

        return predict

    return make_predict_fn


def for_daft(predictor: Predictor) -> Any:
    """Return a function of Daft, whose columns are the inputs in their order.

    The result is a struct of the outputs and `error`, as those of `tables.predict_table`.
    """
    import daft

    names = [spec.name for spec in predictor.inputs]
    empty = pa.table({name: pa.nulls(0) for name in names})
    kind = daft.DataType.from_arrow_type(pa.struct(list(predict_table(predictor, empty).schema)))

    def predict(*columns: Any) -> Any:
        table = pa.table({name: column.to_arrow() for name, column in zip(names, columns, strict=True)})
        return predict_table(predictor, table).to_struct_array().combine_chunks()

    return daft.func.batch(return_dtype=kind)(predict)
