"""Archives of a model, unpacked without trust: files and folders alone, inside the target, within limits."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from cluster_serving.protocol.errors import ModelError

MAX_ENTRIES = 10_000
"""Most files and folders of an archive."""

MAX_BYTES = 100 << 30
"""Most bytes of all files of an archive."""

_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, NotImplementedError, RuntimeError),
)
_RESOURCE_FORK = "__MACOSX"


class _Entry(NamedTuple):
    name: str
    size: int
    is_folder: bool
    is_file: bool
    content: IO[bytes] | None


def unpack(archive: Path, kind: str, target: Path, name: str) -> None:
    """Unpack an archive into a new folder; `kind` is one of `url.ARCHIVES`, and `name` stands for it in messages.

    Raises:
        ModelError: If the archive is damaged, or has entries that are neither files nor folders or lie outside of it.
            Also if it is larger than `MAX_ENTRIES`, `MAX_BYTES` or the free space of the disk. What was unpacked stays.
    """
    target.mkdir()
    free = shutil.disk_usage(target).free
    count = size = 0
    try:
        for entry in (_zip if kind == ".zip" else _tar)(archive):
            count, size = count + 1, size + entry.size
            if count > MAX_ENTRIES or size > MAX_BYTES:
                raise ModelError(f"{name} holds more than {MAX_ENTRIES} files or {MAX_BYTES >> 30} GiB")
            if size > free:
                raise ModelError(f"{name} needs more than the {free >> 20} MiB that are free in {target.parent}")
            _write(entry, target, name)
    except _DAMAGED as error:
        raise ModelError(f"{name} cannot be unpacked: {type(error).__name__}: {error}") from None


def root(folder: Path) -> Path:
    """Return the folder of the model in an unpacked archive: that folder itself, or the only one in it."""
    names = [path for path in folder.iterdir() if path.name != _RESOURCE_FORK and not path.name.startswith(".")]
    return names[0] if len(names) == 1 and names[0].is_dir() else folder


def _write(entry: _Entry, target: Path, name: str) -> None:
    path = PurePosixPath(entry.name)
    if path.is_absolute() or ".." in path.parts or "\0" in entry.name:
        raise ModelError(f"{name} is refused: its entry {entry.name!r} lies outside of the archive")
    if entry.is_folder:
        (target / path).mkdir(parents=True, exist_ok=True)
    elif not entry.is_file or entry.content is None:
        raise ModelError(
            f"{name} is refused: its entry {entry.name!r} is neither file nor folder; pack files in place of links "
            "(tar --dereference)"
        )
    else:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        # Exclusively: an entry cannot replace another one.
        with entry.content as content, (target / path).open("xb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        if (written := (target / path).stat().st_size) != entry.size:
            raise ModelError(f"{name} is damaged: its entry {entry.name!r} has {written} of {entry.size} bytes")


def _tar(archive: Path) -> Iterator[_Entry]:
    # As a stream: a compressed archive is read once, from the beginning to the end.
    with tarfile.open(archive, "r|*") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            yield _Entry(member.name, member.size, member.isdir(), member.isreg(), content)


def _zip(archive: Path) -> Iterator[_Entry]:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            # The upper half has the type of file that Unix programs give: 0, or that of a regular file.
            is_file = not member.is_dir() and member.external_attr >> 28 in (0, 0o10)
            content = packed.open(member) if is_file else None
            yield _Entry(member.filename, member.file_size, member.is_dir(), is_file, content)
