"""How each task slot says whether its model is loaded, and what that expects: the Redis hash `<jobName>:slots`.

Flink calls a task RUNNING before the operators of process mode are open, so its state alone does not say that requests
will be answered. The launcher waits for these reports; front ends and operators read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model.

    Attributes:
        name: Name by which requests and results call it.
        dtype: numpy name such as "float32"; "str" for a tensor of strings; "" if the model does not say.
        shape: With the batch dimension; None for a dimension of any size, None as a whole if the model does not say.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def record_shape(self) -> tuple[int | None, ...] | None:
        """Shape of one record: without the batch dimension; None if unknown."""
        return None if self.shape is None else self.shape[1:]

    @property
    def numpy_dtype(self) -> np.dtype[Any] | None:
        """The dtype of numbers; None for strings, or if the model does not say."""
        return None if self.dtype in ("", "str") else np.dtype(self.dtype)

    def __str__(self) -> str:
        return f"{self.name}: {type_text(self.dtype, self.shape)}"


def type_text(dtype: str, shape: Sequence[int | None] | None) -> str:
    """Write a dtype and a shape as people do: `float32[?, 64]`, `any[...]` where nothing is known."""
    sizes = "..." if shape is None else ", ".join("?" if size is None else str(size) for size in shape)
    return f"{dtype or 'any'}[{sizes}]"


@dataclass(frozen=True, slots=True)
class SlotReport:
    """State of one slot.

    Attributes:
        submission: Which start of the job this slot belongs to.
        state: `loading`, `ready` or `failed`; `stopped` once the launcher has stopped its job.
        engine: Name of the engine that computes the model.
        inputs: What the loaded model expects.
        outputs: What it gives.
        already_batched: Requests carry a batch dimension (`inputAlreadyBatched`).
        post_processing: Filter that results have gone through (`postProcessing`).
        max_batch_size: Most records that are computed together (`maxBatchSize`).
        code: Code of the error that kept the model from loading.
        error: Its message.
        time: Seconds since the epoch.
        index: Index of the slot, from 0.
    """

    submission: str
    state: str
    engine: str = ""
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    already_batched: bool = False
    post_processing: str = ""
    max_batch_size: int = 1
    code: str | None = None
    error: str | None = None
    time: float = 0.0
    index: int = 0

    @property
    def model(self) -> str:
        """The model in one line, for people; empty while it is not loaded."""
        if not self.engine:
            return ""
        return f"{self.engine}: {', '.join(map(str, self.inputs))} → {', '.join(map(str, self.outputs))}"

    def to_json(self) -> str:
        """Serialize for the hash."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> SlotReport:
        """Read what `to_json` wrote."""
        raw: dict[str, Any] = json.loads(text)
        # A job of a newer version may report more.
        known = {field.name: raw[field.name] for field in fields(cls) if field.name in raw}
        return cls(**known | {key: tuple(map(_spec, raw.get(key, ()))) for key in ("inputs", "outputs")})


def read_reports(reports: Mapping[bytes, bytes] | Mapping[str, str]) -> list[SlotReport]:
    """Reports in a hash `<jobName>:slots`, as Redis gives it, by index."""
    found = [replace(SlotReport.from_json(text), index=int(index)) for index, text in reports.items()]
    return sorted(found, key=lambda report: report.index)


def _spec(raw: Mapping[str, Any]) -> TensorSpec:
    shape = raw["shape"]
    return TensorSpec(raw["name"], raw["dtype"], None if shape is None else tuple(shape))
