"""Reports of task slots about their models: the Redis hash `<jobName>:slots`.

Flink calls a task RUNNING before the operators of process mode are open, so that state does not mean that requests are
answered. The launcher waits for the reports; front ends read them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cluster_serving.protocol.json_record import JsonRecord
from cluster_serving.protocol.keys import as_text
from cluster_serving.protocol.versions import FIRST

if TYPE_CHECKING:
    import numpy as np

HEARTBEAT_S = 3.0
"""Seconds between two heartbeats of a slot, which are in the field `<index>:beat` of the hash."""

SILENT_AFTER_S = 15.0
"""Seconds without a heartbeat after which a slot that had loaded its model counts as silent: its process is gone."""

_MOST_TOLD = 8

_WHITE = re.compile(r"\s")

_STATES = ("ready", "loading", "failed", "silent", "stopped")


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model.

    Attributes:
        name: Name in requests and results.
        dtype: numpy name such as "float32"; "str" for a tensor of strings; "" if unknown.
        shape: Shape with the batch dimension; None for a dimension of any size, None as a whole if unknown.
        computed: Narrower dtype in which the engine computes an input; empty if it is `dtype`.
        column: `yes` for a column of a table, which is found by its name alone; `some` if a request may have others,
            which the model does not read; `codes` for one of texts that are names of categories, and a whole number
            stands for its text. Empty for any other tensor.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    computed: str = ""
    column: str = ""

    @property
    def record_shape(self) -> tuple[int | None, ...] | None:
        """Shape of one record, without the batch dimension; None if unknown."""
        return None if self.shape is None else self.shape[1:]

    @property
    def numpy_dtype(self) -> np.dtype[Any] | None:
        """The dtype of numbers; None for strings, or if unknown."""
        # Commands read the reports of slots, and need no NumPy.
        import numpy as np

        return None if self.dtype in ("", "str") else np.dtype(self.dtype)

    def __str__(self) -> str:
        return f"{self.name}: {type_text(self.dtype, self.shape)}"


def column_of(spec: TensorSpec, names: Sequence[str]) -> str:
    """Return the one of the names of a table that is the column of an input, as `matched` has it; else the input's."""
    if spec.name in names or not spec.column:
        return spec.name
    same = [name for name in names if _WHITE.sub("_", name) == spec.name]
    return same[0] if len(same) == 1 else spec.name


def matched(names: Collection[str], specs: Sequence[TensorSpec]) -> dict[str, TensorSpec]:
    """Return the input of the model for each name of a request that is one; empty if the names do not tell the inputs.

    Inputs are matched by name, and by position if no name is the model's. Columns of a table are never matched by
    position, but with any white space in place of their underscores, which LightGBM writes for it.
    """
    by_name = {spec.name: spec for spec in specs}
    if by_name.keys() == set(names):
        return by_name
    if any(spec.column for spec in specs):
        written = {name: _written(name, by_name) for name in names}
        found = {name: by_name[column] for name, column in written.items() if column in by_name}
        told = written.values() if specs[0].column != "some" else found
        return found if len({*told}) == len(found) == len(specs) else {}
    if len(names) != len(specs) or (len(specs) > 1 and not by_name.keys().isdisjoint(names)):
        return {}
    return dict(zip(names, specs))


def differing(names: Collection[str], specs: Sequence[TensorSpec]) -> str:
    """Return the start of a message about names that `matched` does not take: the missing and the unknown ones.

    It is empty if no name is the model's, as other names are matched by position.
    """
    known = {spec.name for spec in specs}
    is_table = any(spec.column for spec in specs)
    written = {_written(name, known) if is_table else name: name for name in names}
    if known.isdisjoint(written):
        return ""
    missing = [spec.name for spec in specs if spec.name not in written]
    unknown = [name for column, name in written.items() if column not in known and specs[0].column != "some"]
    told = [f"{_listed(found)} {what}" for found, what in ((missing, "missing"), (unknown, "unknown")) if found]
    return f"{', '.join(told)}: " if told else ""


def _written(name: str, known: Container[str]) -> str:
    return name if name in known else _WHITE.sub("_", name)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:64]) for name in names[:_MOST_TOLD])
    more = f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"


def filled(shape: Sequence[int], expected: Sequence[int | None] | None) -> tuple[int, ...]:
    """Return the shape of a record with the dimensions of size 1 that a single value lacks.

    A number or a text, of shape [], is one of [1] where the model expects that; values of all clients follow this rule.
    """
    if expected is None or len(shape) >= len(expected) or any(size not in (1, None) for size in (*shape, *expected)):
        return tuple(shape)
    return (1,) * len(expected)


def fits(shape: Sequence[int], expected: Sequence[int | None] | None) -> bool:
    """Return True if a shape is an expected one, where None leaves a size, or the whole shape, open."""
    if expected is None:
        return True
    return len(shape) == len(expected) and all(e is None or e == s for s, e in zip(shape, expected))


def type_text(dtype: str, shape: Sequence[int | None] | None) -> str:
    """Return a dtype and a shape as text: `float32[?, 64]`, or `any[...]` if both are unknown."""
    sizes = "..." if shape is None else ", ".join("?" if size is None else str(size) for size in shape)
    return f"{dtype or 'any'}[{sizes}]"


@dataclass(frozen=True)
class SlotReport(JsonRecord):
    """State of one slot.

    Attributes:
        submission: Identifier of the start of the job that the slot belongs to.
        state: `loading`, `ready` or `failed`; `stopped` once the launcher has stopped its job. A reader that knows the
            time reads `silent` for `ready` if the attempt has given no heartbeat for `SILENT_AFTER_S`.
        engine: Name of the engine that runs the model; empty if no slot of this job has loaded one yet. While a slot is
            loading, failed or stopped, this and the following fields describe the model that it had before.
        device: Device that computes the model, such as `cpu` or `cuda:1`; several of a handler are separated by commas.
            Empty if the slot does not tell.
        inputs: Inputs of the loaded model.
        outputs: Outputs of the loaded model.
        already_batched: Requests carry a batch dimension (`inputAlreadyBatched`).
        post_processing: Filter of the results (`postProcessing`).
        max_batch_size: Limit of the number of records in a batch (`maxBatchSize`).
        code: Code of the error that kept the model from loading, now or in the attempt before.
        error: Message of that error.
        time: Time of the report in seconds since the epoch.
        index: Index of the slot, from 0.
        attempt: Identifier of the attempt at running the slot; each restart by Flink is another one. Empty if nothing
            runs yet. Only heartbeats of this attempt count.
        version: Version of the model that the slot has loaded or loads.
        in_pieces: The model makes pieces of its answers, for clients that ask for them.
        numbered: The version is that of the model's folder; otherwise it is the number of the update.
        one_by_one: Reason for computing one record a call; empty if records share calls.
        untried: Why the model has computed nothing yet; empty if it has.
        sent: Outputs after `post_processing`, with the dtypes that clients get, and sizes that a record may change as
            None. Empty if there is not a filter, or nothing tells.
        columns: Requests may hold several records, up to `max_batch_size` (`protocol.columns`).
        restarts: Number of attempts of this submission before this one.
        threads: Threads that the copy of the model may use; 0 if the slot does not tell.
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
    attempt: str = ""
    version: str = FIRST
    in_pieces: bool = False
    numbered: bool = False
    device: str = ""
    one_by_one: str = ""
    untried: str = ""
    sent: tuple[TensorSpec, ...] = ()
    restarts: int = 0
    columns: bool = False
    threads: int = 0

    @property
    def together(self) -> int:
        """Most records of a request."""
        return self.max_batch_size if self.columns else 1

    @property
    def has_failed(self) -> bool:
        """True if the last attempt that has ended could not load the model."""
        return self.state != "ready" and self.error is not None

    @property
    def model(self) -> str:
        """Engine, device, inputs and outputs in one line; empty while the model is not loaded."""
        if not self.engine:
            return ""
        place = self.device and f" on {self.device}"
        alone = self.one_by_one and f", one record a call ({self.one_by_one})"
        untried = self.untried and f"; it has computed nothing yet: {self.untried}"
        takes, gives = (", ".join(map(str, specs)) for specs in (self.inputs, self.outputs))
        return f"{self.engine}{place}: {takes} → {gives}{alone}{untried}"

    @property
    def summary(self) -> str:
        """Version and `model` in one line; empty while the model is not loaded."""
        return self.model and f"version {self.version}, {self.model}"

    @classmethod
    def from_json(cls, text: str | bytes) -> SlotReport:
        """Read a report, with its lists of inputs and outputs; see `JsonRecord`."""
        report = super().from_json(text)
        specs: Any = {name: tuple(map(_spec, getattr(report, name))) for name in ("inputs", "outputs", "sent")}
        return replace(report, **specs)


def read_reports(
    reports: Mapping[bytes, bytes] | Mapping[str, str], now: float | None = None, silent_after: float = SILENT_AFTER_S
) -> list[SlotReport]:
    """Return the reports in a hash `<jobName>:slots`, ordered by index.

    `now` is the time by the clock of Redis, in seconds since the epoch; without it no slot is `silent`.
    """
    slots, beats = [], {}
    for field, text in reports.items():
        index, _, beat = as_text(field).partition(":")
        if beat:
            attempt, _, seconds = as_text(text).partition(" ")
            beats[int(index), attempt] = float(seconds)
        else:
            slots.append(replace(SlotReport.from_json(text), index=int(index)))
    for at, slot in enumerate(slots):
        if now is not None and slot.state == "ready" and slot.attempt:
            silent_for = now - beats.get((slot.index, slot.attempt), 0)
            slots[at] = replace(slot, state="silent") if silent_for > silent_after else slot
    return sorted(slots, key=lambda slot: slot.index)


def at_once(reports: Sequence[SlotReport]) -> int:
    """Return the most records of a request with a job at a time: a batch in each slot, and the one that comes next."""
    return 2 * max(1, len(reports)) * max((report.max_batch_size for report in reports), default=1)


def slot_states(reports: Iterable[SlotReport]) -> dict[str, int]:
    """Return the number of slots in each state; one that is tried again after an error is `failed`."""
    states = Counter("failed" if report.has_failed else report.state for report in reports)
    return dict.fromkeys(_STATES, 0) | states


def _spec(raw: Mapping[str, Any]) -> TensorSpec:
    shape = raw["shape"]
    rest = raw.get("computed", ""), raw.get("column", "")
    return TensorSpec(raw["name"], raw["dtype"], None if shape is None else tuple(shape), *rest)
