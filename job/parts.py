"""Answers to entries of several records, whose records are computed with those of other requests."""

from collections.abc import Mapping, Sequence

from cluster_serving.connectors.answer import Answer
from cluster_serving.protocol import columns
from cluster_serving.protocol.results import encode_result


class Parts:
    """The records of a slot that are answered, while others of their entries are not."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, bytes], dict[int, Answer]] = {}

    def whole(self, answers: Sequence[Answer]) -> list[Answer]:
        """Take answers; return those of whole entries, in order."""
        done = []
        for answer in answers:
            if answer.part < 0:
                done.append(answer)
                continue
            key = answer.entry.priority, answer.entry.id
            held = self._held.setdefault(key, {})
            held[answer.part] = answer
            if len(held) == answer.entry.record_count:
                done.append(_joined([held[index] for index in range(len(held))]))
                del self._held[key]
        return done


def _joined(parts: Sequence[Answer]) -> Answer:
    first = parts[0]
    names = first.outputs[0] if first.outputs else ()
    rows = [part.outputs[1] for part in parts if part.outputs and part.outputs[0] == names]
    fields = columns.stacked(names, rows) if len(rows) == len(parts) else None
    letter = next((part.letter for part in parts if part.letter), None)
    return Answer(first.entry, first.flow_id, fields or columns.joined([*map(_fields, parts)]), letter)


def _fields(part: Answer) -> Mapping[str, str | bytes]:
    return part.fields if part.outputs is None else encode_result(True, *part.outputs)
