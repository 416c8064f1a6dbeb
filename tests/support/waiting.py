"""Waiting for what happens elsewhere."""

import time


def wait_until(condition, seconds=30):
    """Return when the condition is true; fail if it does not become so in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)
