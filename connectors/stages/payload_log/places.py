"""Places of a payload log: Parquet files in a folder or a store."""

import time
import uuid
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

        with fsspec.open(f"{url.rstrip('/')}/{name}", "wb") as file:
            pq.write_table(table, file)
        return
    folder = Path(url)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A file is never seen half.
    pq.write_table(table, folder / f".{name}")
    (folder / f".{name}").rename(folder / name)
