"""Folder with the answers of a batch scoring: a file for each unit, which is there as a whole or not at all."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from itertools import chain
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType, LocalFileSystem

from cluster_serving.embed import lock
from cluster_serving.embed.tables import ERROR
from cluster_serving.embed.units import ROWS, Unit, find, opened
from cluster_serving.protocol.errors import InvalidInput, ServingError

FAILURES = (ServingError, OSError, pa.ArrowException)
"""Errors of one unit."""

Outcomes = Iterator[tuple[Unit, tuple[int, int] | Exception]]
"""Units that have ended, each with its numbers of rows and of errors, or why it has failed."""

_CLAIM = "_score.json"
_ASIDE, _FAILURE = ".part", ".failed"
_GROUP_BYTES = 4 << 20


class Output:
    """A folder, which is made if it is not there.

    Args:
        address: Path or address.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._system, self.folder = opened(address)
        self._system.create_dir(self.folder)

    def held(self) -> AbstractContextManager[None]:
        """Keep other programs from writing here, if the folder is local; raise `ServingError` if one does."""
        return lock.held(self.folder) if isinstance(self._system, LocalFileSystem) else nullcontext()

    def claim(self, identity: str) -> None:
        """Write down what the answers are of; raise `ServingError` if the folder has those of something else."""
        path = posixpath.join(self.folder, _CLAIM)
        if not self._system.get_file_info(path).is_file:
            aside = posixpath.join(self.folder, f".{_CLAIM}{_ASIDE}")
            with self._system.open_output_stream(aside) as file:
                file.write(identity.encode())
            self._system.move(aside, path)
            return
        with self._system.open_input_stream(path) as file:
            if file.read() != identity.encode():
                raise ServingError(
                    f"{self._address} has the output of another input, model or configuration; choose another folder, "
                    "or remove it"
                )

    def release(self) -> None:
        """Forget the input and model of the answers, as the folder has no answers: the next command may have others."""
        self._system.delete_file(posixpath.join(self.folder, _CLAIM))

    def units(self, pattern: str) -> list[Unit]:
        """Return the units of an input, of which this folder may be a part; raise `InvalidInput` if it has them all."""
        found = [unit for unit in find(pattern) if not unit.files[0].startswith(f"{self.folder}/")]
        if not found:
            raise InvalidInput(f"all files of {pattern} are in the folder of the output; choose another --output")
        return found

    def has(self, unit: Unit) -> bool:
        """Return True if a unit is scored."""
        return bool(self._system.get_file_info(self._path(unit)).is_file)

    def split(self, units: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
        """Return the units that are scored, and those that are not."""
        there = set(self._files())
        found: tuple[list[Unit], list[Unit]] = ([], [])
        for unit in units:
            found[self._path(unit) not in there].append(unit)
        return found

    def tidy(self) -> None:
        """Remove what programs have left that were killed."""
        for path in self._files():
            if posixpath.basename(path).startswith(".") and path.endswith((_ASIDE, _FAILURE)):
                self._system.delete_file(path)

    def fail(self, unit: Unit, error: Exception) -> None:
        """Note why a unit cannot be scored, for the program that waits for it."""
        self._system.create_dir(posixpath.dirname(self._path(unit)))
        with self._system.open_output_stream(self._hidden(unit, _FAILURE)) as file:
            file.write(str(error).encode())

    def outcomes(self, units: Sequence[Unit]) -> Outcomes:
        """Yield the units that others have scored, or noted as failed."""
        there = set(self._files())
        for unit in units:
            if (path := self._path(unit)) in there:
                yield unit, self._counted(path)
            elif (path := self._hidden(unit, _FAILURE)) in there:
                with self._system.open_input_stream(path) as file:
                    yield unit, ServingError(str(file.read(), "utf8"))

    def _counted(self, path: str) -> tuple[int, int]:
        """Return the rows of a file, and those with an error, from what its end tells."""
        with self._system.open_input_file(path) as file:
            metadata = pq.read_metadata(file)
        # The errors are the last column.
        at = metadata.num_columns - 1
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        fine = sum(group.column(at).statistics.null_count for group in groups)
        return metadata.num_rows, metadata.num_rows - fine

    def errors(self, unit: Unit) -> list[str]:
        """Return the errors of the rows of a scored unit."""
        with self._system.open_input_file(self._path(unit)) as file:
            parquet = pq.ParquetFile(file)
            name = parquet.schema_arrow.names[-1]
            return [text for text in parquet.read(columns=[name]).column(name).to_pylist() if text is not None]

    def _files(self) -> list[str]:
        found = self._system.get_file_info(FileSelector(self.folder, recursive=True))
        return [file.path for file in found if file.type == FileType.File]

    def write(self, unit: Unit, tables: Iterator[pa.Table]) -> tuple[int, int]:
        """Write the answers of a unit; return its rows, and those with an error.

        All tables get the columns of the first that has more than errors. A column that one lacks is null there.
        """
        path, aside = self._path(unit), self._hidden(unit, f".{uuid4().hex}{_ASIDE}")
        self._system.create_dir(posixpath.dirname(path))
        rows = wrong = 0
        first = _first(tables) or [pa.table({ERROR: pa.array([], pa.string())})]
        schema = first[-1].schema
        with self._system.open_output_stream(aside) as file, _writer(file, schema) as writer:
            for table in _gathered(_conformed(table, schema) for table in chain(first, tables)):
                writer.write_table(table)
                rows, wrong = rows + len(table), wrong + len(table) - table.column(-1).null_count
        self._system.move(aside, path)
        return rows, wrong

    def _path(self, unit: Unit) -> str:
        return posixpath.join(self.folder, unit.name)

    def _hidden(self, unit: Unit, end: str) -> str:
        folder, name = posixpath.split(self._path(unit))
        return posixpath.join(folder, f".{name}{end}")


def _writer(file: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer without dictionaries of floats, which take four times as long to write, and hardly repeat."""
    empty = BytesIO()
    # `empty_table` would import pandas.
    pq.write_table(pa.Table.from_batches([], schema), empty)
    columns = pq.read_metadata(empty).schema
    leaves = [columns.column(at) for at in range(len(columns))]
    repeated = [leaf.path for leaf in leaves if leaf.physical_type not in ("FLOAT", "DOUBLE")]
    return pq.ParquetWriter(file, schema, use_dictionary=repeated)


def _first(tables: Iterator[pa.Table]) -> list[pa.Table]:
    """Take tables up to the first that has more than errors."""
    taken = []
    for table in tables:
        taken.append(table)
        if table.column_names != [ERROR]:
            break
    return taken


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables: each would be a row group, and a row group without rows has no statistics."""
    waiting, rows, size = list[pa.Table](), 0, 0
    for table in tables:
        waiting.append(table)
        rows, size = rows + len(table), size + table.nbytes
        if rows >= ROWS or size >= _GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(waiting)


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.column_names == [ERROR]:
        # The rows that could not be read: their columns are not known.
        table = table.rename_columns(schema.names[-1:])
    names = set(table.column_names)
    if new := names - set(schema.names):
        raise InvalidInput(f"the first rows have no column {min(new)!r}; --keep says which columns are copied")
    columns = [
        table[field.name].cast(field.type) if field.name in names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
