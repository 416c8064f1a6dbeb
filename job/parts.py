"""Answers to entries of several records, whose records are computed with those of other requests."""

from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np

from cluster_serving.connectors.slot.answer import Answer
from cluster_serving.protocol import columns
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.results import encode_result
from cluster_serving.protocol.token_counts import mark, mark_columns


class Parts:
    """The records of a slot that are answered, while others of their entries are not.

    An entry that is delivered twice is answered twice.
    """

    def __init__(self) -> None:
        # By the object of the entry, which a second delivery has of its own.
        self._held: dict[int, list[Answer]] = {}
        self._left: dict[int, int] = {}

    def whole(self, answers: Sequence[Answer]) -> list[Answer]:
        """Take answers; return those of whole entries, in order."""
        done = []
        for answer in answers:
            if answer.part < 0:
                done.append(answer)
                continue
            key = id(answer.entry)
            self._held.setdefault(key, []).append(answer)
            self._left[key] = self._left.get(key, answer.entry.record_count) - (answer.rows or 1)
            if not self._left[key]:
                done.append(_joined(sorted(self._held.pop(key), key=attrgetter("part"))))
                del self._left[key]
        return done


def _joined(parts: Sequence[Answer]) -> Answer:
    first = parts[0]
    names = first.outputs[0] if first.outputs else ()
    arrays = [_arrays(part) for part in parts if part.outputs and part.outputs[0] == names]
    fields = columns.stacked(names, arrays) if len(arrays) == len(parts) else None
    fields = fields and mark_columns(fields, [counts for part in parts for counts in part.tokens])
    letters = [letter for part in parts for letter in part.letters]
    return Answer(first.entry, fields or columns.joined([*map(_fields, _each(parts))]), letters)


def _arrays(part: Answer) -> Sequence[Array]:
    """Return the outputs of a part with its records along a first dimension."""
    arrays = part.outputs[1] if part.outputs else ()
    return arrays if part.rows else [np.asarray(array)[np.newaxis] for array in arrays]


def _each(parts: Sequence[Answer]) -> list[Answer]:
    """Return the answer to each record."""
    each = []
    for part in parts:
        if part.rows and part.outputs:
            names, arrays = part.outputs
            rows = [(names, [array[row, ...] for array in arrays]) for row in range(part.rows)]
            each += [part._replace(outputs=one, tokens=part.tokens[row : row + 1]) for row, one in enumerate(rows)]
        else:
            each += [part] * (part.rows or 1)
    return each


def _fields(part: Answer) -> Mapping[str, str | bytes]:
    return part.fields if part.outputs is None else mark(encode_result(True, *part.outputs), *part.tokens)
