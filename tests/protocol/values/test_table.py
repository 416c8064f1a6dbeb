"""The table of conversions: every pair of a kind of value and a kind of input, through each form of the value."""

import datetime
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cluster_serving.client.sending.convert import to_input as of_client
from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.job.options import ImageOptions
from cluster_serving.job.predictor.record import convert
from cluster_serving.job.preprocessing import Preprocessor
from cluster_serving.job.ways import CONVERSION, KINDS
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.original.json import to_input as of_json
from cluster_serving.protocol.slots import TensorSpec
from cluster_serving.protocol.values.arrow import of_column
from cluster_serving.protocol.values.table import RULES, Kind, Refused, Rule, Target, converted, target_of

BEYOND = 2**53 + 1
NAN, NO = math.nan, Refused
SPECS = {
    "float64": TensorSpec("x", "float64", (None,), column="yes"),
    "float32": TensorSpec("x", "float32", (None,), column="yes"),
    "int64": TensorSpec("x", "int64", (None,), column="yes"),
    "uint8": TensorSpec("x", "uint8", (None,), column="yes"),
    "bool": TensorSpec("x", "bool", (None,), column="yes"),
    "text": TensorSpec("x", "str", (None,), column="yes"),
    "words": TensorSpec("x", "str", (None,)),
    "codes": TensorSpec("x", "str", (None,), column="codes"),
}
"""Inputs: columns of a table, and `words`, a text of another model."""

_THIRD = float(np.float32(1.1))
PAIRS = [
    # value, then what each of the inputs makes of it.
    (None, NAN, NAN, NO, NO, NO, None, NO, None),
    (pd.NA, NAN, NAN, NO, NO, NO, None, NO, None),
    (pd.NaT, NAN, NAN, NO, NO, NO, None, NO, None),
    (NAN, NAN, NAN, NO, NO, NO, None, NO, None),
    (math.inf, math.inf, math.inf, NO, NO, NO, NO, NO, NO),
    (True, 1.0, 1.0, 1, 1, True, NO, NO, "1"),
    (1, 1.0, 1.0, 1, 1, True, NO, NO, "1"),
    (7, 7.0, 7.0, 7, 7, NO, NO, NO, "7"),
    (-1, -1.0, -1.0, -1, NO, NO, NO, NO, "-1"),
    (BEYOND, float(BEYOND), float(np.float32(BEYOND)), BEYOND, NO, NO, NO, NO, str(BEYOND)),
    (2**64, 2.0**64, 2.0**64, NO, NO, NO, NO, NO, NO),
    (10**400, NO, NO, NO, NO, NO, NO, NO, NO),
    (1.0, 1.0, 1.0, 1, 1, True, NO, NO, NO),
    (1.1, 1.1, _THIRD, NO, NO, NO, NO, NO, NO),
    (1e300, 1e300, NO, NO, NO, NO, NO, NO, NO),
    (Decimal("1.10"), 1.1, _THIRD, NO, NO, NO, NO, NO, NO),
    (Decimal("2.00"), 2.0, 2.0, 2, 2, NO, NO, NO, "2"),
    (Decimal(BEYOND), float(BEYOND), float(np.float32(BEYOND)), BEYOND, NO, NO, NO, NO, str(BEYOND)),
    (Decimal("1e400"), NO, NO, NO, NO, NO, NO, NO, NO),
    ("cat", NO, NO, NO, NO, NO, "cat", "cat", "cat"),
    ("", NO, NO, NO, NO, NO, "", "", ""),
    ("1.10", 1.1, _THIRD, NO, NO, NO, "1.10", "1.10", "1.10"),
    (" 1.0 ", 1.0, 1.0, 1, 1, True, " 1.0 ", " 1.0 ", " 1.0 "),
    ("00123", 123.0, 123.0, 123, 123, NO, "00123", "00123", "00123"),
    (str(BEYOND), float(BEYOND), float(np.float32(BEYOND)), BEYOND, NO, NO, *[str(BEYOND)] * 3),
    ("1e-3", 0.001, float(np.float32(0.001)), NO, NO, NO, "1e-3", "1e-3", "1e-3"),
    ("1e999999999", NO, NO, NO, NO, NO, *["1e999999999"] * 3),
    ("0x10", NO, NO, NO, NO, NO, "0x10", "0x10", "0x10"),
    ("1_000", NO, NO, NO, NO, NO, "1_000", "1_000", "1_000"),
    ("True", 1.0, 1.0, 1, 1, True, "True", "True", "True"),
    ("nan", NAN, NAN, NO, NO, NO, "nan", "nan", "nan"),
    (b"caf\xc3\xa9", NO, NO, NO, NO, NO, "café", "café", "café"),
    (b"\xff", NO, NO, NO, NO, NO, NO, NO, NO),
    (datetime.date(2020, 1, 2), NO, NO, NO, NO, NO, NO, NO, NO),
    (datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc), NO, NO, NO, NO, NO, NO, NO, NO),
    (datetime.timedelta(1), NO, NO, NO, NO, NO, NO, NO, NO),
    (np.datetime64("2020-01-02"), NO, NO, NO, NO, NO, NO, NO, NO),
    ({"a": 1}, NO, NO, NO, NO, NO, NO, NO, NO),
    ([1, 2], NO, NO, NO, NO, NO, NO, NO, NO),
]
EVERY = [(value, name, found) for value, *row in PAIRS for name, found in zip(SPECS, row, strict=True)]
IDS = [f"{value!r}-{name}"[:60] for value, name, _ in EVERY]


def same(found, expected):
    found = found.item() if isinstance(found, np.generic) else found
    is_nan = isinstance(expected, float) and math.isnan(expected)
    return (
        (isinstance(found, float) and math.isnan(found))
        if is_nan
        else (type(found), found) == (type(expected), expected)
    )


def of_arrow(value, spec):
    """The input that a column with the value is, or the error of its row."""
    try:
        column = pa.array([value], from_pandas=False)
    except (ValueError, TypeError, OverflowError):
        column = [value]
    found = of_column("x", column, spec)
    if found.errors:
        raise found.errors[0]
    return found.values


def of_job(value, spec):
    """The input that a job makes of the value of a program."""
    job = Preprocessor([spec], "CHW", ImageOptions(), kinds=KINDS, conversion=CONVERSION)
    return np.asarray(job.prepare({"x": convert(value, "x")})[0]).reshape(1)


@pytest.mark.parametrize(("value", "name", "expected"), EVERY, ids=IDS)
def test_every_pair_of_value_and_input(value, name, expected):
    spec = SPECS[name]
    if expected is Refused:
        with pytest.raises(Refused):
            converted(value, spec)
    else:
        found = converted(value, spec)
        dtype = object if spec.dtype == "str" else spec.dtype
        assert same(np.array([found], dtype)[0], expected)


@pytest.mark.parametrize(("value", "name", "expected"), EVERY, ids=IDS)
def test_a_column_of_arrow_follows_the_table(value, name, expected):
    typed_beyond = isinstance(value, int) and abs(value) > 2**53 and "float" in name and value == BEYOND
    if expected is Refused or typed_beyond:
        if isinstance(value, list) or (isinstance(value, bytes) and SPECS[name].dtype != "str"):
            pytest.skip("a tensor, or an image there")
        with pytest.raises(InvalidInput, match="^input 'x'.* is .*; expected "):
            of_arrow(value, SPECS[name])
    else:
        assert same(of_arrow(value, SPECS[name])[0], expected)


JSON = (type(None), bool, int, float, str)


@pytest.mark.parametrize(("value", "name", "expected"), [row for row in EVERY if isinstance(row[0], JSON)])
def test_a_value_of_json_follows_the_table(value, name, expected):
    if isinstance(value, float) and not math.isfinite(value):
        pytest.skip("JSON has no such number")
    if expected is Refused:
        with pytest.raises(InvalidInput, match="^input 'x'.* (is|holds) "):
            of_json("x", value, SPECS[name])
    else:
        assert same(of_json("x", value, SPECS[name]).reshape(1)[0], expected)


@pytest.mark.parametrize("name", ["float64", "float32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("value", [None, True, 1, 7, -1, BEYOND, 2**64, 1.0, 1.1, 1e300, "cat", "1.10"])
def test_v2_and_v1_read_a_number_alike(value, name):
    def outcome(read):
        try:
            return read().reshape(1)[0].tobytes()
        except InvalidInput:
            return Refused

    datatype = datatypes.of_name(SPECS[name].dtype)
    first = outcome(lambda: of_json("x", [value], TensorSpec("x", SPECS[name].dtype, (None, 1))))
    assert outcome(lambda: datatypes.from_numbers("x", datatype, (1,), [value])) == first


@pytest.mark.parametrize(("value", "name", "expected"), EVERY, ids=IDS)
def test_a_value_of_the_client_follows_the_table_in_the_job(value, name, expected):
    if isinstance(value, (str, bytes, dict, list)) or (isinstance(value, int) and value == 2**64):
        pytest.skip("a path, an image or a tensor; the client refuses 2^64")
    typed_beyond = isinstance(value, int) and value == BEYOND and "float" in name
    if expected is Refused or typed_beyond:
        with pytest.raises(InvalidInput, match="'x'"):
            of_job(of_client("x", value), SPECS[name])
    elif isinstance(value, (Decimal, float)) and SPECS[name].dtype != "float64" and "float" not in name:
        pytest.skip("a decimal is sent as float64, which has no large whole number and no text")
    else:
        assert same(of_job(of_client("x", value), SPECS[name])[0], expected)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None]), [1, NAN]),
        (pa.array([1, None], pa.uint8()), [1, NAN]),
        (pa.array([1.5, None], pa.float32()), [1.5, NAN]),
        (pa.array([True, None]), [1, NAN]),
        (pa.array([None, None]), [NAN, NAN]),
        (pa.array([Decimal("1.5"), None]), [1.5, NAN]),
        (pa.array(["1.5", None]).dictionary_encode(), [1.5, NAN]),
        (pa.array([3, None]).dictionary_encode(), [3, NAN]),
        (pa.array([" 1.5", None], pa.large_string()), [1.5, NAN]),
        (pa.array(["1.5", None], pa.string_view()), [1.5, NAN]),
        (pa.chunked_array([pa.array([1]), pa.array([None], pa.int64())]), [1, NAN]),
        (pa.array(np.array([1.5, 2], "f2")), [1.5, 2]),
        (pa.array([[1, None], [3, 4]]), [[1, NAN], [3, 4]]),
        (pa.array([[1.5, None], [3, 4]], pa.list_(pa.float32(), 2)), [[1.5, NAN], [3, 4]]),
        (pa.array([["1.5", None], ["3", "4"]], pa.large_list(pa.string())), [[1.5, NAN], [3, 4]]),
        (pa.array([[[1], [None]], [[3], [4]]]), [[[1], [NAN]], [[3], [4]]]),
        (pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(4.0).reshape(2, 2)), [[0, 1], [2, 3]]),
        (pa.array([], pa.int64()), []),
    ],
)
def test_a_column_of_every_type_is_numbers(column, expected):
    found = of_column("x", column, TensorSpec("x", "float32", None, column="yes"))
    assert not found.errors
    np.testing.assert_array_equal(np.asarray(found.values, "f4"), np.array(expected, "f4"))


def test_a_row_that_is_refused_leaves_the_others_alone():
    found = of_column("age", pa.array(["1", "old", None, "2"]), SPECS["int64"])
    assert found.values[[0, 3]].tolist() == [1, 2]
    assert {row: str(error) for row, error in found.errors.items()} == {
        1: "input 'age' is 'old'; expected a whole number of at most 64 bits, in digits",
        2: "input 'age' is null; expected a whole number of at most 64 bits, in digits",
    }
    lists = pa.array([[1, 2], None, [BEYOND, 2], [3, 4]])
    found = of_column("x", lists, TensorSpec("x", "float32", (None, 2)))
    assert found.values[[0, 3]].tolist() == [[1, 2], [3, 4]]
    assert {row: str(error)[:40] for row, error in found.errors.items()} == {
        1: "input 'x' is null; expected a list of va",
        2: "input 'x': x[0] is 9007199254740993; exp",
    }


def test_the_rules_are_those_of_the_pairs():
    kinds = {Kind.NULL: None, Kind.NAN: NAN, Kind.INFINITE: math.inf, Kind.BOOL: True, Kind.WHOLE: 1, Kind.HUGE: 2**64}
    kinds |= {
        Kind.FRACTION: 1.1,
        Kind.TEXT: "cat",
        Kind.BYTES: b"a",
        Kind.DATE: datetime.date(2020, 1, 1),
        Kind.OTHER: {},
    }
    assert set(kinds) == set(Kind) == set(RULES)
    for kind, value in kinds.items():
        for spec in (SPECS["float64"], SPECS["int64"], SPECS["bool"], SPECS["text"], SPECS["codes"]):
            target = target_of(spec)
            try:
                converted(value, spec)
                taken = True
            except Refused:
                taken = False
            if kind is not Kind.TEXT or target in (Target.TEXT, Target.CODES):
                assert taken == (RULES[kind][target] is not Rule.REFUSED)
