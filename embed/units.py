"""Units of batch scoring: a row group, a file, or some images, whose answers are one file."""

from __future__ import annotations

import fnmatch
import hashlib
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from cluster_serving.protocol.errors import InvalidInput

IMAGE = "image"
"""Column with the content of an image file; the column `path` has its path."""

_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
_IMAGES_OF_A_UNIT = 512
_BUFFER = 4 << 20
_ROWS = 8192
_IMAGE_ROWS = 64
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Unit:
    """Rows that are read, scored and written together.

    Attributes:
        address: Place of the files: a path or an address in their file system.
        name: Path of the file of its answers, in the folder of the output.
        files: Paths in the file system of `address`; several for images.
        group: Row group of the file; None for all rows.
        size: Bytes to read.
    """

    address: str
    name: str
    files: tuple[str, ...]
    group: int | None
    size: int

    def batches(self) -> Iterator[pa.Table]:
        """Read the rows in batches."""
        system, _ = opened(self.address)
        reader = _READERS.get(_suffix(self.files[0]), _images)
        return (pa.Table.from_batches([batch]) for batch in reader(system, self))


def opened(address: str) -> tuple[FileSystem, str]:
    """Return the file system of an address, such as `s3://…`, or of a local path; and the path in it."""
    if "://" in address:
        found: tuple[FileSystem, str] = FileSystem.from_uri(address)
        return found
    return LocalFileSystem(), str(Path(address).absolute())


def find(pattern: str) -> list[Unit]:
    """Return the units of a file, of a folder, or of all files that match a pattern such as `data/*.parquet`.

    Raises:
        InvalidInput: If there is no file of a known type.
    """
    parts = pattern.split("/")
    fixed = next((index for index, part in enumerate(parts) if _WILD.search(part)), len(parts))
    base = "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")
    system, root = opened(base)
    files = [(path, size) for path, size in _files(system, root) if _matches(path, root, parts[fixed:])]
    files = sorted((path, size) for path, size in files if _suffix(path) in (*_READERS, *_IMAGES))
    if not files:
        known = ", ".join((*_READERS, *_IMAGES))
        raise InvalidInput(f"{pattern} has no file to score; files of these types are read: {known}")
    images = [file for file in files if _suffix(file[0]) in _IMAGES]
    tables = [file for file in files if file not in images]
    return [*(unit for file in tables for unit in _of_file(system, base, root, *file)), *_of_images(base, images)]


def _files(system: FileSystem, root: str) -> list[tuple[str, int]]:
    info = system.get_file_info(root)
    if info.type == FileType.File:
        return [(info.path, info.size)]
    found = system.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
    return [(file.path, file.size) for file in found if file.type == FileType.File]


def _matches(path: str, root: str, pattern: Sequence[str]) -> bool:
    if not pattern:
        return True
    parts = posixpath.relpath(path, root).split("/")
    return len(parts) == len(pattern) and all(map(fnmatch.fnmatch, parts, pattern))


def _suffix(path: str) -> str:
    return posixpath.splitext(path)[1].lower()


def _of_file(system: FileSystem, base: str, root: str, path: str, size: int) -> Iterator[Unit]:
    name = posixpath.basename(path) if path == root else posixpath.relpath(path, root)
    if _suffix(path) not in (".parquet", ".pq"):
        yield Unit(base, f"{name}.parquet", (path,), None, size)
        return
    with system.open_input_file(path) as file:
        metadata = pq.read_metadata(file)
    for group in range(metadata.num_row_groups):
        stem = posixpath.splitext(name)[0]
        yield Unit(base, f"{stem}.{group:05}.parquet", (path,), group, metadata.row_group(group).total_byte_size)


def _of_images(base: str, files: Sequence[tuple[str, int]]) -> Iterator[Unit]:
    for start in range(0, len(files), _IMAGES_OF_A_UNIT):
        paths, sizes = zip(*files[start : start + _IMAGES_OF_A_UNIT], strict=True)
        # Images that were added make other units.
        digest = hashlib.sha256("\n".join(paths).encode()).hexdigest()[:16]
        yield Unit(base, f"images.{digest}.parquet", paths, None, sum(sizes))


def _parquet(system: FileSystem, unit: Unit) -> Iterator[pa.RecordBatch]:
    with system.open_input_file(unit.files[0]) as file:
        # Without the buffer a whole column of the row group is read at once.
        yield from pq.ParquetFile(file, buffer_size=_BUFFER).iter_batches(_ROWS, row_groups=[unit.group])


def _csv(system: FileSystem, unit: Unit) -> Iterator[pa.RecordBatch]:
    with system.open_input_stream(unit.files[0]) as file:
        yield from pyarrow.csv.open_csv(file)


def _json_lines(system: FileSystem, unit: Unit) -> Iterator[pa.RecordBatch]:
    with system.open_input_stream(unit.files[0]) as file:
        rest = b""
        # pyarrow reads whole files only.
        while block := file.read(4 << 20):
            lines, _, rest = (rest + block).rpartition(b"\n")
            if lines:
                yield from pyarrow.json.read_json(pa.BufferReader(lines)).to_batches()
        if rest.strip():
            yield from pyarrow.json.read_json(pa.BufferReader(rest)).to_batches()


def _images(system: FileSystem, unit: Unit) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(unit.files), _IMAGE_ROWS):
        paths = unit.files[start : start + _IMAGE_ROWS]
        contents = []
        for path in paths:
            with system.open_input_stream(path) as file:
                contents.append(file.read())
        yield pa.record_batch({"path": pa.array(paths), IMAGE: pa.array(contents, pa.binary())})


_READERS: dict[str, Callable[[FileSystem, Unit], Iterator[pa.RecordBatch]]] = {
    ".parquet": _parquet,
    ".pq": _parquet,
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
}
