"""The least that the slots of a job need of this machine, where TaskManagers are started for them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import memory
from cluster_serving.protocol.host import cgroup

# All of these are generous, so that nothing that works is refused.
_TASK_MANAGER = 256 << 20
"""Bytes of a TaskManager without a job; 370 MiB were measured."""

_PROCESS = 64 << 20
"""Bytes of the Python process of a slot in process mode."""

_SLOTS_PER_CORE = 200
"""Each slot looks for requests all the time, so more of them than this do nothing else."""


def check(config: Config, files: Iterable[Path]) -> None:
    """Check that this machine can hold the slots of a job.

    Raises:
        LaunchError: If it cannot; the message has the arithmetic, and the number of slots that would do.
    """
    slots, need = config.slots, _Need.of(config, files)
    if need.fits(slots):
        return
    most = need.most(slots)
    raise LaunchError(
        f"modelParallelism: {slots} is more than this machine can hold. {need.managers(slots)} TaskManagers of at "
        f"least {_text(_TASK_MANAGER)}, and {slots} copies of the model of at least {_text(need.slot)} (its files "
        f"have {_text(need.files)}), need {_text(need.memory(slots))}; memory and swap have "
        f"{_text(memory.total_memory())}. {slots} idle slots need {math.ceil(slots / _SLOTS_PER_CORE)} cores; there "
        f"are {cgroup.cores()}. "
        + (f"Set modelParallelism to {most} at most; one slot per core is usual" if most else "Not even one fits")
    )


def most(config: Config, files: Iterable[Path], slots: int) -> int:
    """Return the number of slots of a job that this machine can hold, `slots` at most."""
    return _Need.of(config, files).most(slots)


def holds(config: Config, files: Iterable[Path], slots: int) -> bool:
    """Return True if this machine can hold so many slots of a job."""
    return _Need.of(config, files).fits(slots)


@dataclass(frozen=True, slots=True)
class _Need:
    """The least that a job needs: bytes of its files, and of each slot; and its slots per TaskManager."""

    files: int
    slot: int
    per_manager: int

    @classmethod
    def of(cls, config: Config, files: Iterable[Path]) -> _Need:
        size = sum(map(memory.size_of, files))
        process = _PROCESS if config.execution_mode == "process" else 0
        return cls(size, memory.least(size) + process, config.slots_per_task_manager)

    def managers(self, slots: int) -> int:
        return math.ceil(slots / self.per_manager)

    def memory(self, slots: int) -> int:
        return self.managers(slots) * _TASK_MANAGER + slots * self.slot

    def fits(self, slots: int) -> bool:
        return self.memory(slots) <= memory.total_memory() and slots <= cgroup.cores() * _SLOTS_PER_CORE

    def most(self, slots: int) -> int:
        return next(filter(self.fits, range(slots, 0, -1)), 0)


def _text(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
