"""Units of batch scoring: a row group, a file, or some images, whose answers are one file."""

from __future__ import annotations

import codecs
import csv
import fnmatch
import hashlib
import io
import lzma
import posixpath
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType, FSSpecHandler, LocalFileSystem, PyFileSystem

from cluster_serving.embed import json_lines
from cluster_serving.job.remote.url import absolute, is_url
from cluster_serving.protocol.errors import InvalidInput

IMAGE = "image"
"""Column with the content of an image file; the column `path` has its path."""

_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
_IMAGES_OF_A_UNIT = 512
_BUFFER = 4 << 20
ROWS = 8192
"""Most rows of a table that is read or written at once."""

_FEWEST_ROWS = 64
_BATCH_BYTES = 16 << 20
_LEAST_BUFFER, _ALL_BUFFERS = 64 << 10, 64 << 20
_CSV_BLOCK = 8 << 20
_IMAGE_ROWS = 64
_SHOWN = 80
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LATIN = "cluster_serving_latin"
_WILD = re.compile(r"[*?\[]")

Columns = dict[str, Any]
"""Columns of rows, of equal length: arrays of Arrow, or lists where the values have no type in common."""

Batches = Iterator[Columns | str]
"""Rows of a file; a text in the place of a row that cannot be read says why."""

Wanted = Callable[[Sequence[str]], Sequence[str]]
"""Chooses from the names of the columns of a file those that are read."""

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_XZ = ".xz"
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", _XZ)
_PACKED = (".zip", ".z", ".br", ".snappy", ".lzo", ".7z", ".rar", ".lzma", ".tar")
"""Suffixes behind which there may be a table that is not read, such as `orders.csv.zip`."""


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
    def place(self) -> str:
        """File, or the first one, and its row group, for messages."""
        return self.files[0] if self.group is None else f"{self.files[0]} (row group {self.group})"

    @property
    def is_text(self) -> bool:
        """True for a file whose values are all texts: CSV."""
        return _READERS.get(_suffix(self.files[0])) is _csv

    def batches(self, wanted: Wanted = list) -> Batches:
        """Read the rows in batches; a row that cannot be read is a text that says why.

        `wanted` chooses from the names of the columns; files of images are read as a whole. Values of CSV are texts.
        The folders of the path are columns of texts, too (`day=2026-01-02/`), unless the file has such a column.
        """
        if not self.size and self.group is None:
            return
        folders = partitions(self.address, self.files[0])

        def chosen(names: Sequence[str]) -> list[str]:
            return [name for name in wanted([*dict.fromkeys((*names, *folders))]) if name in names]

        system, _ = opened(self.address)
        reader = _READERS.get(_suffix(self.files[0]), _images)
        for batch in reader(system, self, chosen):
            if isinstance(batch, dict):
                count = len(next(iter(batch.values()), ()))
                batch |= {
                    name: pa.array([text] * count, pa.string()) for name, text in folders.items() if name not in batch
                }
            yield batch


def partitions(address: str, path: str) -> dict[str, str | None]:
    """Return the columns that the folders of a file have in their names, as Hive writes them: `name=value`."""
    _, root = opened(address)
    found = dict[str, str | None]()
    for part in posixpath.relpath(path, root).split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            found[unquote(name)] = None if value == _NO_VALUE else unquote(value)
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
    for path, _ in files:
        stem, end = posixpath.splitext(path.lower())
        if end in _PACKED and posixpath.splitext(stem)[1] in _READERS:
            read = ", ".join(_COMPRESSED)
            raise InvalidInput(f"{path} is not read: unpack it, or compress it as one of {read}; or move it elsewhere")
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


@contextmanager
def _stream(system: FileSystem, path: str) -> Iterator[pa.NativeFile]:
    """Open a file whose bytes may be compressed; pyarrow decompresses all that `_COMPRESSED` has but xz."""
    with system.open_input_stream(path) as file:
        if not path.lower().endswith(_XZ):
            yield file
            return
        with lzma.open(file) as unpacked:
            yield pa.PythonFile(unpacked, "r")


def _of_file(system: FileSystem, base: str, root: str, path: str, size: int) -> Iterator[Unit]:
    name = posixpath.basename(path) if path == root else posixpath.relpath(path, root)
    if _suffix(path) not in (".parquet", ".pq"):
        yield Unit(base, f"{name}.parquet", (path,), None, size)
        return
    stem = posixpath.splitext(name)[0]
    try:
        with system.open_input_file(path) as file:
            metadata = pq.read_metadata(file)
    except (pa.ArrowException, OSError):
        # The error of one file is that of its unit, when it is read.
        metadata = None
    if metadata is None or not metadata.num_row_groups:
        yield Unit(base, f"{stem}.00000.parquet", (path,), None, max(1, size))
        return
    for group in range(metadata.num_row_groups):
        yield Unit(base, f"{stem}.{group:05}.parquet", (path,), group, metadata.row_group(group).total_byte_size)


def _of_images(base: str, files: Sequence[tuple[str, int]]) -> Iterator[Unit]:
    for start in range(0, len(files), _IMAGES_OF_A_UNIT):
        paths, sizes = zip(*files[start : start + _IMAGES_OF_A_UNIT], strict=True)
        # Images that were added make other units.
        digest = hashlib.sha256("\n".join(paths).encode()).hexdigest()[:16]
        yield Unit(base, f"images.{digest}.parquet", paths, None, sum(sizes))


def _parquet(system: FileSystem, unit: Unit, wanted: Wanted) -> Batches:
    with system.open_input_file(unit.files[0]) as file:
        metadata = pq.read_metadata(file)
        names = metadata.schema.to_arrow_schema().names
        _refuse_twice(names)
        chosen = wanted(names)
        # Without the buffers a whole column of the row group is read at once. Nanoseconds end in 2262, and INT96 later.
        buffer = max(_LEAST_BUFFER, min(_BUFFER, _ALL_BUFFERS // max(1, len(chosen))))
        parquet = pq.ParquetFile(file, metadata=metadata, buffer_size=buffer, coerce_int96_timestamp_unit="us")
        group = None if unit.group is None else metadata.row_group(unit.group)
        if group is None or not group.num_rows:
            # A file without rows still tells the columns, which readers of a folder take from its first file.
            yield _named(parquet.schema_arrow.empty_table().select(chosen))
            return
        rows = _rows_of(group, len(chosen) / len(names))
        for batch in parquet.iter_batches(rows, row_groups=[unit.group], columns=chosen):
            yield _named(batch)


def _rows_of(group: pq.RowGroupMetaData, share: float) -> int:
    """Return the rows of a batch of some megabytes, if this share of the columns is read."""
    row = share * group.total_byte_size / max(1, group.num_rows)
    return max(_FEWEST_ROWS, min(ROWS, int(_BATCH_BYTES / max(1.0, row))))


def _named(batch: pa.RecordBatch | pa.Table) -> Columns:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _csv(system: FileSystem, unit: Unit, wanted: Wanted) -> Batches:
    bad: deque[pyarrow.csv.InvalidRow] = deque()

    def note(row: pyarrow.csv.InvalidRow) -> str:
        bad.append(row)
        return "skip"

    path = unit.files[0]
    mark = "\t" if _suffix(path) == ".tsv" else ","
    names, empty, has_rows = _header(system, path, mark)
    if not has_rows:
        # pyarrow does not take a header alone.
        if names:
            yield {name: pa.array([], pa.string()) for name in wanted(names)}
        return
    with _stream(system, path) as file:
        # With threads, rows have no numbers. The names are given, as those of pyarrow have to be UTF-8.
        read = pyarrow.csv.ReadOptions(
            use_threads=False, block_size=_CSV_BLOCK, column_names=names, skip_rows=empty, skip_rows_after_names=1
        )
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
                yield from _texts(rest[: row.number - at])
                yield _fields_error(row)
                rest, at = rest[row.number - at :], row.number + 1
            yield from _texts(rest)
            at += len(rest)
        yield from map(_fields_error, bad)


def _header(system: FileSystem, path: str, mark: str) -> tuple[list[str], int, bool]:
    """Return the names of the columns, the number of empty lines before them, and True if rows follow.

    Raises:
        InvalidInput: If two names are equal, or the file has another encoding.
    """
    with _stream(system, path) as file:
        head = file.read(2)
    if head in _UTF_16:
        raise InvalidInput("the file is UTF-16; expected UTF-8: iconv -f UTF-16 -t UTF-8 converts it")
    with _stream(system, path) as file, io.TextIOWrapper(file, "utf-8-sig", _LATIN, newline="") as text:
        empty = 0
        try:
            for names in csv.reader(text, delimiter=mark):
                if names:
                    _refuse_twice(names)
                    return names, empty, bool(text.read(1))
                empty += 1
        except csv.Error as error:
            raise InvalidInput(f"the header cannot be read: {error}") from error
    return [], 0, False


def _latin(error: UnicodeDecodeError) -> tuple[str, int]:
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error(_LATIN, _latin)  # type: ignore[arg-type]


def _refuse_twice(names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidInput(f"there are {count} columns {name!r}; expected one: rename the others")


def _texts(rows: pa.RecordBatch) -> Iterator[Columns]:
    """Yield columns of bytes as texts: a value that is not UTF-8 is read as Latin-1."""
    for start in range(0, len(rows), ROWS):
        batch = rows[start : start + ROWS]
        yield {name: _decoded(column) for name, column in _named(batch).items()}


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
    def blocks() -> Iterator[bytes]:
        with _stream(system, unit.files[0]) as file:
            yield from json_lines.blocks_of(file.read)

    # The types are those of all lines: the file is read twice.
    types = json_lines.types_of(blocks())
    chosen = {name: types[name] for name in wanted([*types])}
    for block in blocks():
        yield from json_lines.columns_of(block, chosen)


def _images(system: FileSystem, unit: Unit, wanted: Wanted) -> Batches:
    for start in range(0, len(unit.files), _IMAGE_ROWS):
        paths = unit.files[start : start + _IMAGE_ROWS]
        contents = []
        for path in paths:
            with system.open_input_stream(path) as file:
                contents.append(file.read())
        yield {"path": pa.array(paths), IMAGE: pa.array(contents, pa.binary())}


_READERS: dict[str, Callable[[FileSystem, Unit, Wanted], Batches]] = {
    ".parquet": _parquet,
    ".pq": _parquet,
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
}
