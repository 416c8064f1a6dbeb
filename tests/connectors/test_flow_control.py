"""Flow control of one slot."""

import threading
import time

from cluster_serving.connectors.flow_control import find, open_lane
from cluster_serving.protocol.entry import Entry


def test_the_source_is_held_back_until_the_sink_has_answered():
    lane = open_lane(limit=4)
    lane.announce(4)
    assert lane.arrive(1)
    assert lane.capacity(0, ahead=True) == 0
    threading.Timer(0.05, lane.answer, [3]).start()
    assert lane.capacity(10, ahead=True) == 3


def test_who_does_not_read_ahead_waits_until_all_is_answered():
    lane = open_lane(limit=4, pause=60)
    assert lane.capacity(0, ahead=False) == 4
    lane.announce(2)
    lane.arrive(2)
    lane.answer(1)
    assert lane.capacity(0, ahead=True) == 3
    threading.Timer(0.05, lane.answer, [1]).start()
    assert lane.capacity(10, ahead=False) == 4


def test_who_does_not_read_ahead_waits_no_longer_than_the_pause():
    lane = open_lane(limit=4, pause=0.01)
    lane.announce(3)
    lane.arrive(3)
    assert lane.capacity(10, ahead=False) == 1


def test_a_window_in_another_process_does_not_hold_the_source_back():
    lane = open_lane(limit=4)
    lane.announce(100)
    assert lane.capacity(0, ahead=True) == lane.capacity(0, ahead=False) == 4


def test_the_last_announced_request_knows_that_it_is_the_last():
    lane = open_lane(limit=10)
    lane.announce(3)
    assert [lane.arrive(1), lane.arrive(2)] == [True, False]


def test_a_lane_is_found_for_as_long_as_its_source_lives():
    lane = open_lane(limit=1)
    assert find(lane.id) is lane
    lane_id = lane.id
    del lane
    assert find(lane_id) is None


def test_the_source_can_wait_until_everything_is_answered():
    lane = open_lane(limit=4)
    assert lane.wait_idle(0)
    lane.announce(1)
    lane.arrive(1)
    assert not lane.wait_idle(0)
    threading.Timer(0.05, lane.answer, [1]).start()
    assert lane.wait_idle(10)


def test_a_lane_knows_how_long_requests_take():
    lane = open_lane(limit=4)
    lane.announce(2)
    lane.arrive(2)
    assert lane.seconds_per_request == 0
    assert lane.unanswered == 2
    time.sleep(0.02)
    lane.announce(2)  # while others are computed, which is not when these begin
    lane.arrive(2)
    lane.answer(2)
    first = lane.seconds_per_request
    lane.answer(2)
    assert first >= 0.01 > lane.seconds_per_request > 0
    assert lane.unanswered == 0


def test_requests_are_taken_in_the_order_in_which_they_were_handed_over():
    lane = open_lane(limit=4)
    assert not lane.attached
    lane.announce(1)
    lane.arrive(1)
    assert lane.attached
    requests = [[Entry(b"%d-0" % number, "", b"")] for number in range(2)]
    for entries in requests:
        lane.hand_over(entries)
    assert [lane.take(), lane.take()] == requests
