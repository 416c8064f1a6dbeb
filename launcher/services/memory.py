"""Memory of this machine, and what a model needs of it, by the size of the model's files.

There are three estimates. What refuses a job takes the least that a model needs, and what promises that a job works
the most.
"""

from pathlib import Path

from cluster_serving.protocol.host.memory import available_memory, total_memory

__all__ = ["ENGINE", "available_memory", "least", "loaded", "loading", "size_of", "total_memory"]

ENGINE = 1 << 30
"""Bytes of an engine with its libraries, generously."""


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


def least(files: int) -> int:
    """Return the least bytes of a loaded model; its files may be larger, as checkpoints hold the state of training."""
    return files // 4


def loaded(files: int) -> int:
    """Return the bytes of a loaded model for a container, which is killed if it takes more."""
    return 3 * files


def loading(files: int) -> int:
    """Return the bytes that surely do while a model is being loaded: engines need a multiple of the files' size."""
    return 4 * files
