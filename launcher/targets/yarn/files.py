"""Files that the jobs of a user share in a cluster's file system: uploaded once, under the name of their content."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.errors import LaunchError

_FOLDER = ".cluster-serving"
_KEPT = 4
_YOUNG = 3600.0
"""Seconds that a file is kept although no application names it: a command may be about to use it."""
_OTHERS_MAY_ENTER = 0o001
_PUBLIC, _PUBLIC_FOLDER, _PRIVATE = 0o644, 0o755, 0o600


class HadoopFiles:
    """The staging folder in the cluster's file system, through a JVM with Hadoop's client.

    `folder` is a path or a URI; empty for `.cluster-serving` in the home folder of this user.
    """

    def __init__(self, jvm: Any, folder: str) -> None:
        hadoop = jvm.org.apache.hadoop
        self._jvm = jvm
        self._path = hadoop.fs.Path
        configuration = hadoop.conf.Configuration()
        path = self._path(folder) if folder else None
        self._fs = path.getFileSystem(configuration) if path else hadoop.fs.FileSystem.get(configuration)
        self._folder = self._fs.makeQualified(path or self._path(self._fs.getHomeDirectory(), _FOLDER))

    @property
    def folder(self) -> str:
        """URI of the staging folder."""
        return str(self._folder.toString())

    def ensure_folder(self, name: str, files: Mapping[PurePosixPath, Path], what: str) -> str:
        """Upload files that every user may read as one folder, if it is not there, and return its URI.

        Raises:
            LaunchError: If other users cannot read it: YARN shares it among the applications of a node.
        """
        target = self._path(self._folder, name)
        if not self._fs.exists(target):
            size = sum(file.stat().st_size for file in files.values())
            say(f"Uploading {what} to {self.folder}, {size / 1e6:.0f} MB")
            with self._uploading(target) as unfinished:
                for path, file in files.items():
                    # Real files: the home of a client has links.
                    self._put(file, self._path(unfinished, str(path)), _PUBLIC)
                self._publish(unfinished)
        self._check_public(target)
        return str(target.toString())

    def ensure(self, file: Path, what: str) -> str:
        """Upload a file that this user alone may read, if no file of its name is there, and return its URI."""
        target = self._path(self._folder, file.name)
        if not self._fs.exists(target):
            say(f"Uploading {what} to {self.folder}, {file.stat().st_size / 1e6:.0f} MB")
            with self._uploading(target) as unfinished:
                self._put(file, unfinished, _PRIVATE)
        return str(target.toString())

    def prune(self, used: Collection[str]) -> None:
        """Remove old files that are not `used`: the latest four of each kind stay, and all of the last hour.

        A file in use is needed when an application starts a container again.
        """
        kinds: dict[str, list[Any]] = {}
        for status in self._fs.listStatus(self._folder):
            kinds.setdefault(str(status.getPath().getName()).partition("-")[0], []).append(status)
        oldest = (time.time() - _YOUNG) * 1000
        for found in kinds.values():
            found.sort(key=lambda status: -status.getModificationTime())
            for status in found[_KEPT:]:
                if status.getPath().getName() not in used and status.getModificationTime() < oldest:
                    self._fs.delete(status.getPath(), True)

    def remove(self, path: str) -> None:
        """Remove a folder below the home folder of this user, if it is there."""
        self._fs.delete(self._path(self._fs.getHomeDirectory(), path), True)

    def names(self, path: str) -> set[str]:
        """Return the names in a folder below the home folder of this user; none if it is not there."""
        folder = self._path(self._fs.getHomeDirectory(), path)
        return {s.getPath().getName() for s in self._fs.listStatus(folder)} if self._fs.exists(folder) else set()

    @contextmanager
    def _uploading(self, target: Any) -> Iterator[Any]:
        """Provide another path, whose file or folder has the name of the target once it is complete."""
        unfinished = self._path(self._folder, f".unfinished-{target.getName()}-{uuid4().hex}")
        try:
            yield unfinished
            # Another command may have been faster.
            if not self._fs.rename(unfinished, target) and not self._fs.exists(target):
                raise LaunchError(f"{target.toString()} cannot be written")
        finally:
            self._fs.delete(unfinished, True)

    def _put(self, file: Path, target: Any, mode: int) -> None:
        # This file system keeps a checksum beside each file on a local disk.
        self._fs.copyFromLocalFile(False, True, self._path(f"file://{os.path.realpath(file)}"), target)
        self._fs.setPermission(target, self._permission(mode))

    def _publish(self, folder: Any) -> None:
        self._fs.setPermission(folder, self._permission(_PUBLIC_FOLDER))
        for status in self._fs.listStatus(folder):
            if status.isDirectory():
                self._publish(status.getPath())

    def _check_public(self, path: Any) -> None:
        while (path := path.getParent()) is not None:
            if not self._fs.getFileStatus(path).getPermission().toShort() & _OTHERS_MAY_ENTER:
                raise LaunchError(
                    f"other users cannot enter {path.toString()}, from which YARN shares Flink's libraries; set "
                    "flink.staging to a folder that all may enter"
                )

    def _permission(self, mode: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.permission.FsPermission(mode)
