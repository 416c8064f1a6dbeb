"""Keys of slots, at the parallelism that a job asks for and at any lower one."""

import random

from cluster_serving.connectors.flink.slot_keys import SlotKeys

GROUPS = 64


def test_each_subtask_finds_a_key_that_flink_assigns_to_it():
    groups = [*range(GROUPS)]
    random.Random(0).shuffle(groups)
    keys = SlotKeys(tuple(groups), GROUPS)
    for parallelism in range(1, 33):
        found = [keys.key_of(subtask, parallelism) for subtask in range(parallelism)]
        assert len(set(found)) == parallelism
        # KeyGroupRangeAssignment: subtask i has the groups from ceil(i * groups / n) to (i + 1) * groups - 1 / n.
        for subtask, key in enumerate(found):
            start = -(-subtask * GROUPS // parallelism)
            end = ((subtask + 1) * GROUPS - 1) // parallelism
            assert start <= groups[key] <= end
