"""Periodic work: many parts of a process share a thread."""

import threading

from cluster_serving.connectors.slot import periodic
from cluster_serving.connectors.slot.periodic import Periodic, pause_after
from tests.support.fixtures.waiting import wait_until

KIND = "work of the test"


class Noted(Periodic):
    """Notes what is done with it; `do` may be replaced."""

    def __init__(self, notes, name, place="here", do=lambda: True):
        self._notes, self._name, self._do = notes, name, do
        self.begin_periodic(KIND, place, 0.01)

    def begin(self):
        self._notes.append((self._name, "begins"))
        return True

    def work(self):
        self._notes.append((self._name, "works"))
        return self._do()

    def end(self):
        self._notes.append((self._name, "ends"))


def threads():
    return [thread for thread in threading.enumerate() if thread.name == KIND]


def test_work_of_a_place_shares_a_thread_which_ends_with_the_last():
    notes = []
    works = [Noted(notes, number) for number in range(50)]
    elsewhere = Noted(notes, "elsewhere", place="there")
    wait_until(lambda: {(number, "works") for number in range(50)} | {("elsewhere", "works")} <= set(notes))
    assert len(threads()) == 2
    elsewhere.end_periodic()
    for work in works:
        work.end_periodic()
        work.end_periodic()
    for name in (*range(50), "elsewhere"):
        done = [what for noted, what in notes if noted == name]
        assert (done[0], done[-1], set(done[1:-1])) == ("begins", "ends", {"works"})
    wait_until(lambda: not threads())


def test_work_that_fails_harms_no_other(caplog):
    notes = []
    failing = Noted(notes, "fails", do=lambda: 1 // 0)
    other = Noted(notes, "works on")
    wait_until(lambda: notes.count(("works on", "works")) > 2)
    assert notes.count(("fails", "works")) == 1
    assert "ZeroDivisionError" in caplog.text
    for work in (failing, other):
        work.end_periodic()
    assert ("fails", "ends") not in notes


def test_a_place_that_does_not_answer_is_asked_once_each_time_in_turn():
    notes = []
    works = [Noted(notes, number, do=lambda: False) for number in range(3)]
    wait_until(lambda: len([what for _, what in notes if what == "works"]) >= 6)
    for work in works:
        work.end_periodic()
    order = [number for number, what in notes if what == "works"]
    assert order[:6] == [0, 1, 2, 0, 1, 2]


def test_work_that_hangs_holds_up_one_end_and_not_each(monkeypatch):
    monkeypatch.setattr(periodic, "_CLOSE_TIMEOUT_S", 0.05)
    notes, goes_on = [], threading.Event()
    works = [Noted(notes, number, do=goes_on.wait) for number in range(20)]
    wait_until(lambda: (0, "works") in notes)
    waits = []
    monkeypatch.setattr(threading.Event, "wait", _counting(waits, threading.Event.wait))
    for work in works:
        work.end_periodic()
    assert waits == [0.05] + [0] * 19
    monkeypatch.undo()
    goes_on.set()
    wait_until(lambda: {(number, "ends") for number in range(20)} <= set(notes))


def _counting(waits, wait):
    here = threading.current_thread()

    def waited(event, timeout=None):
        if threading.current_thread() is here:
            waits.append(timeout)
        return wait(event, timeout)

    return waited


def test_work_that_takes_long_comes_less_often():
    assert pause_after(0.0005, 1.0) == 1.0
    assert pause_after(0.02, 1.0) == 2.0
    assert pause_after(30.0, 1.0) == 5.0
