"""Whether an answer is right: it must be nearest to what its own request was answered when it was alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster_serving.protocol.inputs import Array


class Checker:
    """Compares answers with reference answers.

    An engine may round differently in a batch, so an answer need not equal its reference; but it must be closer to it
    than half of the distance between any two references. If two references are equal, answers that were mixed up
    could not be told from right ones, and nothing is checked.

    Args:
        references: One answer per different request, flat.
    """

    def __init__(self, references: Sequence[Array]) -> None:
        self._references = [np.asarray(reference, "f8").ravel() for reference in references]
        distances = [_distance(a, b) for index, a in enumerate(self._references) for b in self._references[index + 1 :]]
        self.margin = min(distances, default=0.0) / 2

    @property
    def is_possible(self) -> bool:
        """Whether the references differ."""
        return self.margin > 0

    def is_right(self, variant: int, answer: Array) -> bool:
        """Compare the answer to request `variant`."""
        return _distance(np.asarray(answer, "f8").ravel(), self._references[variant]) < self.margin


def _distance(a: Array, b: Array) -> float:
    if a.shape != b.shape or not a.size:
        return float("inf") if a.shape != b.shape else 0.0
    with np.errstate(invalid="ignore"):
        distance = float(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b)).max())
    return distance if np.isfinite(distance) else float("inf")
