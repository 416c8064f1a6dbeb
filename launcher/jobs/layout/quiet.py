"""The rest of the machine while layouts are measured: other programs, and time that a hypervisor takes."""

from __future__ import annotations

import time

from cluster_serving.protocol.host import machine

_SAMPLE_S = 0.25
_SAMPLES = 8
"""Samples before a measurement, until one finds the machine quiet: a Flink that has just started is busy."""

_LEAST_CORES, _SHARE = 0.2, 0.05
"""Cores, or share of all cores, that other programs may use."""

_STOLEN = 0.02
"""Share of the time of all cores that a hypervisor may take."""


class Surroundings:
    """Observes the machine from before a measurement, while the measured copies wait, until after it.

    Args:
        cores: Cores of this machine.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        for _ in range(_SAMPLES):
            self._used = _used()
            if self._used <= _allowed(cores):
                break
        self._began, self._stolen = time.monotonic(), machine.stolen_us()

    def disturbance(self) -> str:
        """Return in words what has disturbed the measurement, which has ended; empty if nothing has."""
        seconds = max(time.monotonic() - self._began, 1e-3)
        stolen = (machine.stolen_us() - self._stolen) / 1e6 / seconds / self._cores
        return told(max(self._used, _used()), stolen, self._cores)


def told(used: float, stolen: float, cores: int) -> str:
    """Return in words what disturbs a measurement; empty if it is quiet enough.

    Args:
        used: Cores that other programs use.
        stolen: Share of the time of all cores that the hypervisor has taken.
        cores: Cores of this machine.
    """
    if used > _allowed(cores):
        return f"other programs used {used:.1f} of {cores} cores"
    return f"the hypervisor took {stolen:.0%} of the time" if stolen > _STOLEN else ""


def _allowed(cores: int) -> float:
    return max(_LEAST_CORES, _SHARE * cores)


def _used() -> float:
    before, began = machine.busy_us(), time.monotonic()
    time.sleep(_SAMPLE_S)
    return (machine.busy_us() - before) / 1e6 / (time.monotonic() - began)
