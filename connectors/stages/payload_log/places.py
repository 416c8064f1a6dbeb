"""Places of a payload log: Parquet files in a folder or a store."""

import time
import uuid
from contextlib import suppress
from pathlib import Path

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
        try:
            # At once: a store that gets a part has it as the file when this ends.
            system.pipe_file(path, content.getvalue().to_pybytes())
        except Exception:
            with suppress(Exception):
                system.rm_file(path)
            raise
        return
    folder = Path(url)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A file is never seen half, also by those that look for hidden ones.
    unfinished = folder / f".{name}.part"
    pq.write_table(table, unfinished)
    unfinished.rename(folder / name)
