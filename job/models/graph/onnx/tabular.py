"""Operators of ONNX for tables (`ai.onnx.ml`), which have a record in each row."""

from __future__ import annotations

from cluster_serving.job.models.graph.given import given, only_constants
from cluster_serving.job.models.graph.network import Node, Operator, Values
from cluster_serving.job.models.graph.rules.pieces import concatenated
from cluster_serving.job.models.graph.size import ONE, unknown_size
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, rows, same_place

_DOMAIN = "ai.onnx.ml."


def _table(values: Values) -> Value:
    """Return the only input; raise `Unknown` if it is no table with a record in each row.

    A vector is one record.
    """
    (x,) = values
    table = given([x])
    if table.rank != 2 or table.kind is not Kind.ROWS or table.axis != 0 or not table.outer == table.inner == ONE:
        raise Unknown
    return table


def _classified(node: Node, values: Values) -> list[Value]:
    batch = _table(values).sizes[0]
    return [rows((batch,), 0), rows((batch, unknown_size()), 0)]


def _predicted(node: Node, values: Values) -> Value:
    return rows((_table(values).sizes[0], unknown_size()), 0)


def _changed(node: Node, values: Values) -> Value:
    x = _table(values)
    return same_place(x, x.sizes)


def _encoded(node: Node, values: Values) -> Value:
    (x,) = values
    return same_place(given([x]), given([x]).sizes)


def _one_hot(node: Node, values: Values) -> Value:
    (x,) = values
    return same_place(given([x]), (*given([x]).sizes, unknown_size()))


def _extracted(node: Node, values: Values) -> Value:
    x = given(values)
    only_constants(values)
    if x.rank < 2 or (x.kind is Kind.ROWS and x.axis == x.rank - 1):
        raise Unknown
    return same_place(x, (*x.sizes[:-1], unknown_size()))


def _joined(node: Node, values: Values) -> Value:
    return concatenated([_table([value]) for value in values], 1)


OPERATORS = {
    **{
        f"{_DOMAIN}{name}": Operator(_classified)
        for name in ("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")
    },
    **{
        f"{_DOMAIN}{name}": Operator(_predicted)
        for name in ("LinearRegressor", "SVMRegressor", "TreeEnsemble", "TreeEnsembleRegressor")
    },
    **{f"{_DOMAIN}{name}": Operator(_changed) for name in ("Binarizer", "Imputer", "Normalizer", "Scaler", "ZipMap")},
    **{f"{_DOMAIN}{name}": Operator(_encoded) for name in ("CategoryMapper", "LabelEncoder")},
    f"{_DOMAIN}OneHotEncoder": Operator(_one_hot),
    f"{_DOMAIN}ArrayFeatureExtractor": Operator(_extracted),
    f"{_DOMAIN}FeatureVectorizer": Operator(_joined),
}
