"""The result of a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from cluster_serving.protocol import columns
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.results import (
    URI,
    VERSION,
    Fields,
    RankedClasses,
    decode_arrays,
    is_ranked,
    ranking_of,
    version_of,
)


class Result(NDArrayOperatorsMixin):
    """The outputs of the model for one request, without a batch dimension; or the error of a request that failed.

    The result of a model with one output works like that array: `result.shape`, `result[0]`, `result + 1`,
    `np.asarray(result)`. `result["name"]` is an output of any model.

    With `postProcessing: topN(n)` an output is an array (n, 2) of class and value, best first.

    Attributes:
        error: Error of a request that failed; None for any other. Only `dequeue` and `predict_many` return results with
            an error. All other attributes of such a result but `version` raise it.
        version: Version of the model that gave the result; None if the job is older than this attribute, or no model
            gave it.
    """

    __slots__ = ("_outputs", "_ranked", "error", "version")

    def __init__(
        self,
        outputs: dict[str, Array],
        ranked: bool = False,
        error: ServingError | None = None,
        version: str | None = None,
    ) -> None:
        self._outputs = outputs
        self._ranked = ranked
        self.error = error
        self.version = version

    @property
    def outputs(self) -> dict[str, Array]:
        """All outputs by name, in the model's order."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self._outputs

    @property
    def value(self) -> Array:
        """The only output.

        Raises:
            ValueError: If the model has several outputs.
        """
        if len(self.outputs) != 1:
            raise ValueError(self._several)
        return next(iter(self._outputs.values()))

    @property
    def _several(self) -> str:
        names = list(self._outputs)
        return f"the result has the outputs {', '.join(names)}; choose one, as in result[{names[0]!r}]"

    @property
    def top_n(self) -> RankedClasses:
        """Class and value of the best classes, best first, of a job with `postProcessing: topN(n)`.

        Raises:
            ValueError: If the job has no such filter, or the model has several outputs.
        """
        value = self.value
        if not self._ranked:
            raise ValueError("the result is not a ranking; the config.yaml of the job needs postProcessing: topN(n)")
        return ranking_of(value)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.array(self.value, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(x.value if isinstance(x, Result) else x for x in inputs), **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if len(self.outputs) != 1:
            raise AttributeError(f"{name}: {self._several}")
        return getattr(self.value, name)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self.value[key]
        if key not in self.outputs:
            raise KeyError(f"the result has no output {key!r}; it has {', '.join(self._outputs)}")
        return self._outputs[key]

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        if self.error is not None:
            return f"Result(error={self.error!r})"
        return f"Result({', '.join(f'{name}={output!r}' for name, output in self._outputs.items())})"


def read_result(fields: Mapping[bytes, bytes]) -> Result:
    """Read a result hash.

    Raises:
        ServingError: If the request failed: the error from the job, as its own class.
    """
    return Result(decode_arrays(fields), is_ranked(fields), version=version_of(fields))


def read_outcome(fields: Mapping[bytes, bytes]) -> Result:
    """Read a result hash; a request that failed gives a result with its error."""
    try:
        return read_result(fields)
    except ServingError as error:
        return failed(error)
    except Exception as error:
        return failed(ServingError(f"the result cannot be read: {type(error).__name__}: {error}"))


def read_outcomes(fields: Fields, count: int) -> list[Result]:
    """Read the result hash of a request of `count` records (`protocol.columns`): the result of each."""
    version = version_of(fields)
    shared = {name: fields[name] for name in (VERSION, URI) if name in fields}
    try:
        return columns.split(
            fields,
            count,
            lambda each: read_outcome({**shared, **each}),
            lambda outputs: Result(outputs, version=version),
        )
    except ServingError as error:
        return all_failed(error, count)


def all_failed(error: ServingError, count: int) -> list[Result]:
    """Return the results of a request that failed as a whole."""
    return [failed(error), *(failed(error.renewed()) for _ in range(count - 1))]


def failed(error: ServingError) -> Result:
    """Return the result of a request that failed."""
    return Result({}, error=error, version=error.version)
