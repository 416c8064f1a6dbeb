"""Places of a payload log: Parquet files in a folder or a store."""

import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa


def write(table: pa.Table, url: str, start: str) -> None:
    """Write a table to a new file; any exception says that it was not written.

    Args:
        table: Requests and answers.
        url: Folder or address.
        start: What the name of the file begins with.
    """
    import pyarrow.parquet as pq

    name = f"{start}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:8]}.parquet"
    if "://" in url:
        import fsspec

        system, path = fsspec.core.url_to_fs(f"{url.rstrip('/')}/{name}")
        content = pa.BufferOutputStream()
        pq.write_table(table, content)
        _pipe(system, path, content.getvalue().to_pybytes())
        return
    folder = Path(url)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A file is never seen half, also by those that look for hidden ones.
    unfinished = folder / f".{name}.part"
    pq.write_table(table, unfinished)
    unfinished.rename(folder / name)


def _pipe(system: Any, path: str, content: bytes) -> None:
    """Write a file of an fsspec file system at once, so that nobody ever sees a part of it under its name."""
    from fsspec import AbstractFileSystem

    # A file system such as HDFS or SFTP renames in one step; an object store, which copies, has a file whole or not.
    renames = type(system).mv is not AbstractFileSystem.mv
    folder, _, name = path.rpartition("/")
    written = f"{folder}/.{name}.part" if renames else path
    try:
        if renames:
            system.makedirs(folder, exist_ok=True)
        system.pipe_file(written, content)
        if renames:
            system.mv(written, path)
    except Exception:
        with suppress(Exception):
            system.rm_file(written)
        raise
