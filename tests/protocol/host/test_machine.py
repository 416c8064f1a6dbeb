"""Processor time and disk of this process, as the system tells them."""

import os
import subprocess
import sys

import pytest

from cluster_serving.protocol.host import machine


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs the affinity of Linux")
def test_a_process_that_shares_its_processor_waits_for_it():
    program = """
import os, threading
from cluster_serving.protocol.host import machine
machine._KEPT_S = 0
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
waiting = machine.Waiting()
before = waiting.us()
others = [threading.Thread(target=os.system, args=("timeout 0.5 yes > /dev/null",)) for _ in range(3)]
for other in others:
    other.start()
while any(other.is_alive() for other in others):
    pass
grown = waiting.us() - before
# Of threads that have ended, the time stays.
print(grown > 0, waiting.us() >= before + grown)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_slots_of_a_process_that_ask_at_once_share_one_answer(monkeypatch, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "schedstat").write_text("5 7000 1")
    monkeypatch.setattr(machine, "_THREADS", str(tmp_path))
    waiting = machine.Waiting()
    assert waiting.us() == 7
    (tmp_path / "1" / "schedstat").write_text("5 9000 1")
    assert waiting.us() == 7
    monkeypatch.setattr(machine, "_KEPT_S", 0)
    assert waiting.us() == 9


def test_a_disk_that_takes_no_temporary_file_has_no_room(monkeypatch, tmp_path):
    assert machine.disk_free() > 0
    monkeypatch.setattr(machine.tempfile, "tempdir", str(tmp_path / "missing"))
    assert machine.disk_free() == 0


def test_without_the_figures_of_linux_nothing_is_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_THREADS", str(tmp_path))
    monkeypatch.setattr(machine, "_MACHINE", tmp_path / "stat")
    assert machine.Waiting().us() == machine.stolen_us() == 0
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 200 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    assert machine.stolen_us() == 200 * 1_000_000 // os.sysconf("SC_CLK_TCK")
