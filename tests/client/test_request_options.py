"""How options of `enqueue` are told from inputs."""

import math
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client import InvalidInput
from cluster_serving.client.request_options import DEFAULTS, RequestOptions, split


def test_plain_values_are_options_and_the_inputs_keep_their_order():
    options, inputs = split({"b": np.zeros(1), "deadline": 1.5, "a": 3})
    assert options == RequestOptions(deadline=1.5)
    assert list(inputs) == ["b", "a"]


@pytest.mark.parametrize("value", [np.zeros(1), np.float64(3), np.array(3), ["text"], b"image", Path("x.jpg")])
def test_what_is_no_plain_value_is_an_input(value):
    options, inputs = split({"deadline": value})
    assert options == DEFAULTS
    assert inputs["deadline"] is value


@pytest.mark.parametrize("value", [0, -1, "5", True, math.nan])
def test_a_plain_value_that_is_no_deadline_is_refused_and_not_sent_as_an_input(value):
    with pytest.raises(InvalidInput, match=r"option 'deadline' is .* expected seconds, more than 0"):
        split({"deadline": value})


@pytest.mark.parametrize(("deadline", "sent"), [(None, None), (2, 2000), (0.0001, 1), (math.inf, 0), (1e300, 0)])
def test_a_deadline_is_sent_as_whole_milliseconds(deadline, sent):
    assert RequestOptions(deadline=deadline).deadline_ms == sent


@pytest.mark.parametrize(
    ("options", "patience"),
    [
        ({}, 0),
        ({"block": True}, math.inf),
        ({"block": True, "timeout": 3}, 3),
        ({"timeout": 3}, 3),
        ({"timeout": 3, "block": False}, 0),
    ],
)
def test_only_who_asks_for_it_waits_for_room(options, patience):
    assert split(options)[0].patience == patience


@pytest.mark.parametrize("options", [{"block": 1}, {"block": "yes"}, {"timeout": -1}, {"timeout": "3"}])
def test_other_options_are_checked_too(options):
    with pytest.raises(InvalidInput, match=f"option '{next(iter(options))}' is"):
        split(options)


@pytest.mark.parametrize("timeout", [0, -1, np.float32(0.001)])
def test_who_does_not_wait_still_sends_a_deadline(timeout):
    assert RequestOptions.waiting(timeout).deadline_ms in (1, 2)
