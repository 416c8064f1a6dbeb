"""Rotation of the output of supervised processes."""

import sys

from cluster_serving.launcher.services import log_file


def test_a_large_log_is_rotated_and_its_writer_goes_on(tmp_path):
    log = tmp_path / "a.log"
    with log.open("ab", 0) as file:
        for number in range(log_file.KEPT + 2):
            file.write(b"%d" % number)
            log_file.rotate(file.fileno())
            assert log.stat().st_size == 1
            file.write(b" " * log_file.LARGEST)
            log_file.rotate(file.fileno())
            assert log.stat().st_size == 0
    assert {path.name: path.read_bytes()[:1] for path in tmp_path.iterdir()} == {
        "a.log": b"",
        "a.log.1": b"5",
        "a.log.2": b"4",
        "a.log.3": b"3",
        "a.log.4": b"2",
    }


def test_what_is_no_file_is_left_alone():
    with open("/dev/zero", "ab") as device:
        log_file.rotate(device.fileno())
    log_file.rotate(sys.__stdout__.fileno())
