"""Units of batch scoring: a row group, a file, or some images, whose answers are one file."""

from __future__ import annotations

import csv
import fnmatch
import hashlib
import io
import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType, FSSpecHandler, LocalFileSystem, PyFileSystem

from cluster_serving.job.remote.url import absolute, is_url
from cluster_serving.protocol.errors import InvalidInput

IMAGE = "image"
"""Column with the content of an image file; the column `path` has its path."""

_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
_IMAGES_OF_A_UNIT = 512
_BUFFER = 4 << 20
ROWS = 8192
"""Most rows of a table that is read or written at once."""

_IMAGE_ROWS = 64
_SHOWN = 80
_WILD = re.compile(r"[*?\[]")

Batches = Iterator[pa.RecordBatch | str]

Wanted = Callable[[Sequence[str]], Sequence[str]]
"""Chooses from the names of the columns of a file those that are read."""

_COMPRESSED = (".gz", ".bz2", ".zst")


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

    @property
    def is_text(self) -> bool:
        """True for a file of which all values are texts: CSV."""
        return _READERS.get(_suffix(self.files[0])) is _csv

    def batches(self, wanted: Wanted = list) -> Iterator[pa.Table | str]:
        """Read the rows in batches; a row that cannot be read is a text that says why.

        `wanted` chooses from the names of the columns; files of JSON lines and images are read as a whole. Values of
        CSV are texts, and partition columns of the path (`day=2026-01-02/`) are added as texts.
        """
        if not self.size:
            return
        system, _ = opened(self.address)
        reader = _READERS.get(_suffix(self.files[0]), _images)
        for batch in reader(system, self, wanted):
            yield batch if isinstance(batch, str) else self._partitioned(pa.Table.from_batches([batch]))

    def _partitioned(self, table: pa.Table) -> pa.Table:
        for name, value in partitions(self.address, self.files[0]).items():
            if name not in table.column_names:
                table = table.append_column(name, pa.array([value] * len(table), pa.string()))
        return table


def partitions(address: str, path: str) -> dict[str, str]:
    """Return the columns that the folders of a file have in their names, as Hive writes them: `name=value`."""
    _, root = opened(address)
    found = dict[str, str]()
    for part in posixpath.relpath(path, root).split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            found[name] = unquote(value)
    return found


def opened(address: str) -> tuple[FileSystem, str]:
    """Return the file system of an address, such as `s3://…`, or of a local path; and the path in it.

    Addresses that pyarrow does not know are those of fsspec.

    Raises:
        InvalidInput: If there is no such file system, or its package is missing.
    """
    if not is_url(address):
        return LocalFileSystem(), absolute(address)
    try:
        found: tuple[FileSystem, str] = FileSystem.from_uri(address)
        return found
    except pa.ArrowInvalid:
        return _of_fsspec(address)


def _of_fsspec(address: str) -> tuple[FileSystem, str]:
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise InvalidInput(f"{address}: {error}") from None
    return PyFileSystem(FSSpecHandler(system)), path


def find(pattern: str) -> list[Unit]:
    """Return the units of a file, of a folder, or of all files that match a pattern such as `data/*.parquet`.

    Raises:
        InvalidInput: If there is no file of a known type, or two units have one name.
    """
    parts = pattern.split("/")
    fixed = next((index for index, part in enumerate(parts) if _WILD.search(part)), len(parts))
    base = "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")
    system, root = opened(base)
    files = [(path, size) for path, size in _files(system, root) if _matches(path, root, parts[fixed:])]
    files = sorted((path, size) for path, size in files if _suffix(path) in (*_READERS, *_IMAGES))
    if not files:
        known = ", ".join((*_READERS, *_IMAGES))
        raise InvalidInput(f"there is no file to score at {pattern}; files of these types are read: {known}")
    images = [file for file in files if _suffix(file[0]) in _IMAGES]
    tables = [file for file in files if _suffix(file[0]) in _READERS]
    units = [*(unit for file in tables for unit in _of_file(system, base, root, *file)), *_of_images(base, images)]
    named = {unit.name: unit for unit in units}
    for unit in units:
        if (other := named[unit.name]) is not unit:
            both = f"{unit.files[0]} and {other.files[0]}"
            raise InvalidInput(f"{both} would have the same file of output, {unit.name}; rename one of them")
    return units


def _files(system: FileSystem, root: str) -> list[tuple[str, int]]:
    info = system.get_file_info(root)
    if info.type == FileType.File:
        return [(info.path, info.size)]
    found = system.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
    return [(file.path, file.size) for file in found if file.type == FileType.File and not _is_hidden(file.path, root)]


def _is_hidden(path: str, root: str) -> bool:
    """Return True for files that writers leave behind, as Spark and Hadoop read it: `_temporary/`, `.part`."""
    return any(part.startswith((".", "_")) and "=" not in part for part in posixpath.relpath(path, root).split("/"))


def _matches(path: str, root: str, pattern: Sequence[str]) -> bool:
    if not pattern:
        return True
    parts = posixpath.relpath(path, root).split("/")
    return len(parts) == len(pattern) and all(map(fnmatch.fnmatch, parts, pattern))


def _suffix(path: str) -> str:
    """Return the suffix of a path, without that of its compression, which pyarrow takes from the name as well."""
    stem, end = posixpath.splitext(path.lower())
    return posixpath.splitext(stem)[1] if end in _COMPRESSED else end


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


def _parquet(system: FileSystem, unit: Unit, wanted: Wanted) -> Batches:
    with system.open_input_file(unit.files[0]) as file:
        # Without the buffer a whole column of the row group is read at once. Nanoseconds end in 2262, and INT96 later.
        parquet = pq.ParquetFile(file, buffer_size=_BUFFER, coerce_int96_timestamp_unit="us")
        names = parquet.schema_arrow.names
        _refuse_twice(unit.files[0], names)
        yield from parquet.iter_batches(ROWS, row_groups=[unit.group], columns=wanted(names))


def _csv(system: FileSystem, unit: Unit, wanted: Wanted) -> Batches:
    bad: deque[pyarrow.csv.InvalidRow] = deque()

    def note(row: pyarrow.csv.InvalidRow) -> str:
        bad.append(row)
        return "skip"

    path = unit.files[0]
    mark = "\t" if _suffix(path) == ".tsv" else ","
    names = _header(system, path, mark)
    with system.open_input_stream(path) as file:
        # With threads, rows have no numbers.
        read = pyarrow.csv.ReadOptions(use_threads=False)
        parse = pyarrow.csv.ParseOptions(delimiter=mark, invalid_row_handler=note, newlines_in_values=True)
        # Texts stay what they are: 00123, an id of 20 digits, a text that looks like a time.
        types = dict.fromkeys(names, pa.binary())
        convert = pyarrow.csv.ConvertOptions(column_types=types, include_columns=wanted(names))
        # Number of the next row; that of the header is 1.
        at = 2
        for batch in pyarrow.csv.open_csv(file, read, parse, convert):
            rest = batch
            while bad and bad[0].number <= at + len(rest):
                row = bad.popleft()
                yield _texts(rest[: row.number - at])
                yield _fields_error(row)
                rest, at = rest[row.number - at :], row.number + 1
            yield _texts(rest)
            at += len(rest)
        yield from map(_fields_error, bad)


def _header(system: FileSystem, path: str, mark: str) -> list[str]:
    """Return the names of the columns; raise `InvalidInput` if two are equal."""
    with system.open_input_stream(path) as file, io.TextIOWrapper(file, "utf-8-sig", "replace", newline="") as text:
        names = next(csv.reader(text, delimiter=mark), [])
    _refuse_twice(path, names)
    return names


def _refuse_twice(path: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"{path} has {names.count(name)} columns {name!r}; expected one: rename the others")


def _texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return columns of bytes as texts: a value that is not UTF-8 is read as Latin-1."""
    return pa.RecordBatch.from_arrays([_decoded(column) for column in batch.columns], names=batch.schema.names)


def _decoded(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in column.to_pylist()], pa.string())


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _fields_error(row: pyarrow.csv.InvalidRow) -> str:
    return f"the row has {row.actual_columns} fields, and the header {row.expected_columns}: {row.text[:_SHOWN]}"


def _json_lines(system: FileSystem, unit: Unit, wanted: Wanted) -> Batches:
    with system.open_input_stream(unit.files[0]) as file:
        rest = b""
        # pyarrow reads whole files only.
        while block := file.read(_BUFFER):
            lines, _, rest = (rest + block).rpartition(b"\n")
            yield from _parsed(lines)
        yield from _parsed(rest)


def _parsed(lines: bytes) -> Batches:
    """Parse lines of JSON; halves find the lines that are none, or whose values are of another type."""
    if not lines.strip():
        return
    try:
        # A line may not be longer than a block.
        options = pyarrow.json.ReadOptions(block_size=max(1 << 20, len(lines)))
        yield from pyarrow.json.read_json(pa.BufferReader(lines), options).to_batches()
    except pa.ArrowInvalid as error:
        middle = lines.find(b"\n", len(lines) // 2)
        middle = middle if middle >= 0 else lines.rfind(b"\n")
        if middle < 0:
            yield f"{str(error).removesuffix(' in row 0')}: {lines[:_SHOWN].decode('utf8', 'replace')}"
            return
        yield from _parsed(lines[:middle])
        yield from _parsed(lines[middle + 1 :])


def _images(system: FileSystem, unit: Unit, wanted: Wanted) -> Batches:
    for start in range(0, len(unit.files), _IMAGE_ROWS):
        paths = unit.files[start : start + _IMAGE_ROWS]
        contents = []
        for path in paths:
            with system.open_input_stream(path) as file:
                contents.append(file.read())
        yield pa.record_batch({"path": pa.array(paths), IMAGE: pa.array(contents, pa.binary())})


_READERS: dict[str, Callable[[FileSystem, Unit, Wanted], Batches]] = {
    ".parquet": _parquet,
    ".pq": _parquet,
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
}
