"""Answers to entries of several records, whose records are answered in any order."""

from itertools import permutations

import numpy as np
import pytest

from cluster_serving.connectors.slot.answer import Answer
from cluster_serving.job.parts import Parts
from cluster_serving.protocol import columns
from cluster_serving.protocol.entry import Entry


def delivered():
    return Entry(b"1-1", "a", b"", records=b"2")


def answer(entry, part):
    return Answer(entry, {}, part=part, outputs=(["y"], [np.float32(part)]))


@pytest.mark.parametrize("order", sorted(permutations([(0, 0), (0, 1), (1, 0), (1, 1)])), ids=str)
def test_an_entry_that_is_delivered_twice_is_answered_twice_and_leaves_nothing(order):
    parts, deliveries = Parts(), (delivered(), delivered())
    whole = [done for delivery, part in order for done in parts.whole([answer(deliveries[delivery], part)])]
    right = columns.stacked(["y"], [[np.float32([0])], [np.float32([1])]])
    assert [done.fields for done in whole] == [right, right]
    # The next entry is not answered before all of its records are.
    again = delivered()
    assert parts.whole([answer(again, 0)]) == []
    assert len(parts.whole([answer(again, 1)])) == 1
