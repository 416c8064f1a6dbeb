"""The least that the slots of a job need of this machine, where TaskManagers are started for them."""

import math
from collections.abc import Iterable
from pathlib import Path

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import machine

# All of these are generous, so that nothing that works is refused.
_TASK_MANAGER = 256 << 20
"""Bytes of a TaskManager without a job; 370 MiB were measured."""

_PROCESS = 64 << 20
"""Bytes of the Python process of a slot in process mode."""

_PART_IN_MEMORY = 4
"""Files of a model may be this many times as large as the model in memory: checkpoints hold the state of training."""

_SLOTS_PER_CORE = 200
"""Each slot looks for requests all the time, so more of them than this do nothing else."""


def check(config: Config, files: Iterable[Path]) -> None:
    """Check that this machine can hold the slots of a job.

    Raises:
        LaunchError: If it cannot; the message has the arithmetic, and the number of slots that would do.
    """
    slots = config.model_parallelism
    size = sum(map(machine.size_of, files))
    slot = size // _PART_IN_MEMORY + (_PROCESS if config.execution_mode == "process" else 0)
    memory, cores = machine.total_memory(), machine.cores()

    def managers(slots: int) -> int:
        return math.ceil(slots / config.slots_per_task_manager)

    def needed(slots: int) -> int:
        return managers(slots) * _TASK_MANAGER + slots * slot

    def is_possible(slots: int) -> bool:
        return needed(slots) <= memory and slots <= cores * _SLOTS_PER_CORE

    if is_possible(slots):
        return
    most = next(filter(is_possible, range(slots, 0, -1)), 0)
    raise LaunchError(
        f"modelParallelism: {slots} is more than this machine can hold. {managers(slots)} TaskManagers of at least "
        f"{_text(_TASK_MANAGER)}, and {slots} copies of the model of at least {_text(slot)} (its files have "
        f"{_text(size)}), need {_text(needed(slots))}; memory and swap have {_text(memory)}. {slots} idle slots need "
        f"{math.ceil(slots / _SLOTS_PER_CORE)} cores; there are {cores}. "
        + (f"Set modelParallelism to {most} at most; one slot per core is usual" if most else "Not even one fits")
    )


def _text(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
