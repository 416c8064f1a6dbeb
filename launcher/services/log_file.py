"""The file with the output of a supervised process: rotated when it is large, as the process does not do it."""

import os
import shutil
import stat

LARGEST = 20 << 20
"""Bytes from which on a file is rotated."""

KEPT = 4
"""Number of rotated files, `<name>.1` to `<name>.4`, from the newest to the oldest."""


def rotate(descriptor: int) -> None:
    """Move the content of an open file to `<name>.1`, if it is large. Anything but a file is left alone.

    The file is copied and emptied, since processes hold it open; they append, so their next line is its first. A line
    that is written between these two steps is lost.

    Raises:
        OSError: If the disk is full, or the file was removed.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size < LARGEST:
        return
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    for number in range(KEPT, 1, -1):
        if os.path.exists(f"{path}.{number - 1}"):
            os.replace(f"{path}.{number - 1}", f"{path}.{number}")
    shutil.copyfile(path, f"{path}.1")
    os.truncate(path, 0)
