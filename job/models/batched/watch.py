"""Watch over the shared calls of a model while it serves: some records are computed again alone, and compared."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import ref

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.batched.sample import Sample
from cluster_serving.job.models.batched.verdict import DIFFERS, DOUBTFUL, Computer, judge, worst
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.metrics import WATCH_TIME, WATCHED
from cluster_serving.protocol.inputs import Array

log = logging.getLogger(__name__)

SHARE = 0.005
"""Most seconds of the watch for each second of computing, after the first calls."""

FAILED = "failed"
"""What is counted in place of a verdict if the record cannot be computed again."""

_ALL = 8
_FIRST = 512
_EVERY = 1000
_AFTER_DOUBT = 16


class Sharing(Computer, Protocol):
    """A model whose records share calls; see `BatchedModel`."""

    outputs: list[TensorSpec]

    @property
    def rounding(self) -> float:
        """See `Model.tolerance`."""

    def end_sharing(self, reason: str) -> None:
        """Compute each record in a call of its own from now on."""


class Watch:
    """Watch over the model of one slot.

    The model calls `shared` after each shared call. Of some calls the watch keeps a record, at a random place: of the
    first eight, then of fewer and fewer, then of one in a thousand. After the answers have been sent, the slot calls
    `check`, in the thread that uses the model.

    Args:
        counts: Place of the figures.

    Attributes:
        ended: Reason for which records share calls no more; empty while they may.
        computed_s: Seconds for which the slot has computed; the slot adds to them.
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self.ended = ""
        self.computed_s = 0.0
        self._spent_s = 0.0
        self._calls = 0
        self._next = 1
        self._doubts = 0
        self._sample: Sample | None = None
        # The model refers to its watch, and Python frees a cycle late.
        self._model: Callable[[], Sharing | None] = lambda: None

    def attach(self, model: Sharing) -> None:
        """Watch over a model, in place of an earlier copy."""
        self._sample, self._model = None, ref(model)
        if self.ended:
            model.end_sharing(self.ended)

    def end(self, reason: str) -> None:
        """End shared calls, as this watch or that of another slot has found a difference; any thread may call it."""
        self.ended = self.ended or reason
        if (model := self._model()) is not None:
            model.end_sharing(self.ended)

    def shared(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Note a call with several records, batch first; keep one of them if it is due."""
        self._calls += 1
        if self._calls < self._next or self._sample is not None or self.ended:
            return
        if self._calls > _FIRST and self._spent_s > SHARE * self.computed_s:
            return
        self._sample = Sample.of(inputs, outputs, random.randrange(len(inputs[0])))  # noqa: S311 - no secret
        self._next = self._calls + self._pause()

    @property
    def is_due(self) -> bool:
        """True if a record waits for `check`."""
        return self._sample is not None

    def check(self, call: Callable[[Callable[[], list[str]]], list[str]]) -> None:
        """Compute the record that waits again alone, and end shared calls if its answer was another one.

        Args:
            call: Calls a function in the thread that uses the model.
        """
        sample, self._sample = self._sample, None
        if sample is None:
            return
        began = time.monotonic()
        try:
            self._conclude(call(lambda: self._verdicts(sample)))
        except Exception as error:
            # The record has its answer. If the model fails on others, too, clients get the error.
            log.warning("a record of a shared call cannot be compared: %s: %s", type(error).__name__, error)
            self._counts.add(WATCHED, label=FAILED)
        finally:
            seconds = time.monotonic() - began
            self._spent_s += seconds
            self._counts.add(WATCH_TIME, round(1e6 * seconds))

    def _verdicts(self, sample: Sample) -> list[str]:
        # A copy that was hanging may have been replaced in this moment.
        model = self._model()
        return [] if model is None else judge(sample, model, model.rounding)

    def _conclude(self, verdicts: Sequence[str]) -> None:
        model = self._model()
        if model is None or not verdicts:
            return
        index = worst(verdicts)
        verdict = verdicts[index]
        self._counts.add(WATCHED, label=verdict)
        doubted, self._doubts = self._doubts, max(0, self._doubts - 1)
        if verdict == DOUBTFUL and not doubted:
            self._doubts = _AFTER_DOUBT
            self._next = self._calls + 1
        elif verdict in (DOUBTFUL, DIFFERS):
            name = model.outputs[index].name
            self.end(f"the watch found that output {name!r} of a record depends on the others in its batch")

    def _pause(self) -> int:
        """Return the number of calls up to the next that is due."""
        if self._calls < _ALL or self._doubts:
            return 1
        if self._calls < _FIRST:
            return self._calls
        # Not always a thousand: requests may come in a rhythm.
        return random.randint(_EVERY // 2, 3 * _EVERY // 2)  # noqa: S311 - no secret
