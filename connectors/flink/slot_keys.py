"""Keys that Flink assigns to given subtasks, so that requests stay in the slot that read them."""

import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlotKeys:
    """Keys of `key_by`, and what determines the subtask that Flink assigns them to.

    Flink's adaptive scheduler runs fewer subtasks than the job asks for while there are fewer slots. So a subtask looks
    for its key when it opens.

    Attributes:
        groups: Key group of each of the keys 0, 1, 2 and so on.
        group_count: Number of key groups, which is Flink's maximum parallelism.
    """

    groups: tuple[int, ...]
    group_count: int

    def key_of(self, subtask: int, parallelism: int) -> int:
        """Return a key that Flink sends to this subtask, out of `parallelism` subtasks."""
        # As KeyGroupRangeAssignment.computeOperatorIndexForKeyGroup of Flink.
        return next(key for key, group in enumerate(self.groups) if group * parallelism // self.group_count == subtask)


def slot_key(raw: bytes) -> int:
    """Return the Flink key of a serialized entry batch (`connectors.flink.entry_batch`), which begins with it.

    The program that submits a job needs it, and imports no entries: they bring NumPy and PyArrow.
    """
    key: int = struct.unpack_from("<i", raw)[0]
    return key
