"""Places of a payload log: Parquet files in a folder or a store, or a Redis stream."""

import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import redis

from cluster_serving.connectors.backlog import LIMIT_BYTES
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.protocol.keys import JobKeys

MOST_TABLES = 1000
"""Most tables in the stream of Redis, which together take some 64 MiB."""

_STREAM_BYTES = 1 << 16


class Place(NamedTuple):
    """Where tables are written.

    Attributes:
        write: Writes a table; any exception says that it was not written.
        enough: Bytes of requests that are worth a table.
        most_request: Most bytes of a request that the place takes.
    """

    write: Callable[[pa.Table], None]
    enough: int
    most_request: int


def place_of(client: redis.Redis, options: RedisOptions, slot: int) -> Place:
    """Return the place that a slot writes to."""
    if options.payload_log_to == "redis":
        return Place(partial(_to_stream, client, JobKeys(options.job).payload_log), _STREAM_BYTES, _STREAM_BYTES)
    name = f"{options.job}-{options.version}-{slot}"
    return Place(partial(_to_file, options.payload_log_to, name), LIMIT_BYTES // 4, LIMIT_BYTES)


def _to_file(url: str, start: str, table: pa.Table) -> None:
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


def _to_stream(client: Any, key: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    fields = {"rows": table.num_rows, "table": sink.getvalue().to_pybytes()}
    client.xadd(key, fields, maxlen=MOST_TABLES, approximate=False)
