"""Archives that are named by their content: written once, to a folder of this user, and never half."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from isal import igzip

from cluster_serving.launcher.command_log import say, say_progress
from cluster_serving.launcher.services import spaceless, state

_CHUNK = 1 << 20
_KEPT = 4
"""Archives of a kind that stay in the folder, the latest used: of models that are tried one after the other."""


def folder() -> Path:
    """Return the folder of the archives, in the state folder; it is made if needed."""
    path = state.root() / "archives"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return spaceless.without_spaces(path)


def path_of(kind: str, digest: str, suffix: str) -> Path:
    """Return the path of an archive, such as `environment-0123456789abcdef.tar.gz`."""
    return folder() / f"{kind}-{digest[:16]}{suffix}"


def write(path: Path, files: Iterable[tuple[PurePosixPath, Path]], what: str) -> None:
    """Write a tar file, compressed if its name ends with `.gz`, and remove old ones of its kind.

    The archive appears under its name when it is complete. Owners are left out. `what` is packed, in words.
    """
    files = list(files)
    done, size = 0, sum(file.stat().st_size for _, file in files)
    say(f"Packing {what}: {_megabytes(size)} MB{' before compression' if path.suffix == '.gz' else ''}")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Level 1 of this library is four times as fast as that of zlib, and packs as well.
        opened: Any = igzip.IGzipFile(unfinished, "wb", 1) if path.suffix == ".gz" else unfinished.open("wb")
        with closing(opened) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
            for name, file in files:
                info = tar.gettarinfo(os.path.realpath(file), str(name))
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                # Other users unpack and read it.
                info.mode |= 0o444
                with file.open("rb") as content:
                    tar.addfile(info, content)
                done += info.size
                say_progress(f"{_megabytes(done)} of {_megabytes(size)} MB")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    _prune(path)


def touch(path: Path) -> bool:
    """Return True if an archive is there; it counts as used now."""
    if not path.exists():
        return False
    os.utime(path)
    return True


def digest_of(files: Iterable[tuple[PurePosixPath, Path]]) -> str:
    """Return a fingerprint of the names and the contents of files."""
    digest = hashlib.sha256()
    for name, file in files:
        digest.update(f"{name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as content:
            while chunk := content.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f}" if size >= 10_000_000 else f"{size / 1e6:.2g}"


def _prune(path: Path) -> None:
    kind = path.name.partition("-")[0]
    # Another command may remove one at the same time.
    with suppress(FileNotFoundError):
        others = sorted(path.parent.glob(f"{kind}-*"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in others[_KEPT:]:
            old.unlink(missing_ok=True)
