"""All results of a job at once, which Redis is searched for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import redis

from cluster_serving.client.positions import RecentEntries
from cluster_serving.client.result import Result, read_outcome
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import Fields

SCAN_COUNT = 500
"""Number of keys that Redis scans, or deletes, in one command."""


def batched(keys: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield the keys in lists of at most `size`."""
    remaining = iter(keys)
    while batch := list(islice(remaining, size)):
        yield batch


def stored(db: redis.Redis, job: str) -> dict[bytes, Fields]:
    """Return the result hashes of a job, by key."""
    results: dict[bytes, Fields] = {}
    scan: Any = db.scan_iter(match=JobKeys(job).result_pattern, count=SCAN_COUNT, _type="HASH")
    for keys in batched([key for key in scan if JobKeys(job).uri_of(key) is not None], SCAN_COUNT):
        with db.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hgetall(key)  # type: ignore[arg-type]
            replies = pipeline.execute()
        results.update((key, fields) for key, fields in zip(keys, replies) if fields)
    return results


def results_of(job: str, hashes: Mapping[bytes, Fields], recent: RecentEntries) -> dict[str, Result]:
    """Read result hashes, given by key. Return results by uri, whose requests are forgotten."""
    keys = JobKeys(job)
    results = {keys.uri_of(key) or "": read_outcome(fields) for key, fields in hashes.items()}
    for uri in results:
        recent.forget(uri)
    return results
