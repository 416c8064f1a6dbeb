"""Places of a payload log: Parquet files in a folder or a store, or a Redis stream."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
import redis

from cluster_serving.connectors.backlog import LIMIT_BYTES
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.protocol.keys import JobKeys

MOST_TABLES = 1000
"""Most entries of that stream."""


class Place(ABC):
    """Where tables are written.

    Attributes:
        enough: Bytes of requests that are worth a table.
        most_request: Most bytes of a request that the place takes.
    """

    enough: int
    most_request: int

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write a table; any exception says that it was not written."""


class _Files(Place):
    enough = LIMIT_BYTES // 4
    most_request = LIMIT_BYTES

    def __init__(self, url: str, name: str) -> None:
        self._url = url.rstrip("/")
        self._name = name

    def write(self, table: pa.Table) -> None:
        import pyarrow.parquet as pq

        name = f"{self._name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:8]}.parquet"
        folder = Path(self._url)
        if "://" in self._url:
            import fsspec

            with fsspec.open(f"{self._url}/{name}", "wb") as file:
                pq.write_table(table, file)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            # A file is never seen half.
            pq.write_table(table, folder / f".{name}")
            (folder / f".{name}").rename(folder / name)


class _Stream(Place):
    # Together the entries take up to 64 MiB.
    enough = most_request = 1 << 16

    def __init__(self, client: Any, key: str) -> None:
        self._client = client
        self._key = key

    def write(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        fields = {"rows": table.num_rows, "table": sink.getvalue().to_pybytes()}
        self._client.xadd(self._key, fields, maxlen=MOST_TABLES, approximate=False)


def place_of(client: redis.Redis, options: RedisOptions, slot: int) -> Place:
    """Return the place that a slot writes to."""
    if options.payload_log_to == "redis":
        return _Stream(client, JobKeys(options.job).payload_log)
    return _Files(options.payload_log_to, f"{options.job}-{options.version}-{slot}")
