"""The data of a Redis that was started here: requests, results and dead letters, which would be lost with it."""

from typing import cast

from redis.exceptions import RedisError

from cluster_serving.launcher.services import redis_server
from cluster_serving.protocol.keys import is_dead_letters, is_log, is_pieces, is_result
from cluster_serving.settings.addresses import Address

_SCANNED = 1000


def describe(address: Address) -> str:
    """Return in words what somebody may still want of the data, over all jobs and databases; empty for nothing."""
    if redis_server.is_ours(address):
        try:
            found = _counted(address)
        except (RedisError, OSError) as error:
            found = f"data that cannot be counted ({error})"
    else:
        size = redis_server.size_on_disk(address)
        found = f"{size} bytes of data, while it does not run" if size else ""
    return found and f"Redis on port {address.port}: {found}"


def databases(address: Address) -> list[int]:
    """Return the databases that have keys, of a Redis that was started here."""
    with redis_server.connect_own(address) as client:
        return [int(name.removeprefix("db")) for name in cast("dict[str, object]", client.info("keyspace"))]


def _counted(address: Address) -> str:
    requests = dead_letters = results = 0
    for database in databases(address):
        with redis_server.connect_own(address, database) as client:
            for stream in client.scan_iter(count=_SCANNED, _type="STREAM"):
                length = cast("int", client.xlen(stream))
                if is_pieces(stream):
                    results += 1
                elif is_dead_letters(stream):
                    dead_letters += length
                elif not is_log(stream):
                    requests += length
            results += sum(map(is_result, client.scan_iter(count=_SCANNED, _type="HASH")))
    counts = {"waiting request": requests, "unread result": results, "dead letter": dead_letters}
    return ", ".join(f"{count} {name}{'s' * (count != 1)}" for name, count in counts.items() if count)
