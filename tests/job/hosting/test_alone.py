"""Calls of the slots of one process, some of which are made while no other one is."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster_serving.job.hosting.alone import Calls
from tests.support.fixtures.waiting import wait_until

LONGEST = 0.5


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def made():
    """What calls have done, in its order."""
    return []


@pytest.fixture
def begin(pool, made):
    """Begins a call in a thread of its own, which goes on until its event is set."""

    def begin(how, name, waits=True):
        ended = threading.Event()

        def make():
            with how():
                made.append(f"{name} begins")
                assert ended.wait(60)
                made.append(f"{name} ends")

        done = pool.submit(make)
        if waits:
            wait_until(lambda: f"{name} begins" in made)
        return lambda: (ended.set(), done.result())

    return begin


def test_a_call_alone_begins_when_the_others_have_ended_and_holds_up_further_ones(begin, made):
    calls = Calls(60)
    end_first, end_second = begin(calls.among_others, "first"), begin(calls.among_others, "second")
    end_alone = begin(calls.alone, "alone", waits=False)
    wait_until(lambda: calls._alone)
    end_late = begin(calls.among_others, "late", waits=False)
    end_first()
    assert made == ["first begins", "second begins", "first ends"]
    end_second()
    wait_until(lambda: "alone begins" in made)
    end_alone()
    end_late()
    assert made[3:] == ["second ends", "alone begins", "alone ends", "late begins", "late ends"]


@pytest.mark.parametrize("how", ["among_others", "alone"])
def test_a_long_call_is_waited_for_once(begin, how):
    calls = Calls(LONGEST)
    end_long = begin(getattr(calls, how), "long")
    waits = []
    for _ in range(3):
        began = time.monotonic()
        with calls.alone():
            waits.append(time.monotonic() - began >= LONGEST)
    with calls.among_others():
        pass
    end_long()
    assert waits == [True, False, False]
    # What has ended meanwhile is not what holds up others now.
    end_other = begin(calls.among_others, "other")
    began = time.monotonic()
    with calls.alone():
        assert time.monotonic() - began >= LONGEST
    end_other()


def test_a_long_call_alone_holds_up_each_of_the_others_once_in_all(begin):
    calls = Calls(LONGEST)
    end_long = begin(calls.alone, "long")
    with calls.among_others():
        pass
    began = time.monotonic()
    for _ in range(3):
        with calls.among_others():
            pass
    assert time.monotonic() - began < LONGEST
    end_long()
