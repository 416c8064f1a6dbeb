"""Fetching results."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_serving.protocol.scripts import Call, Script

# A pipeline of commands would cost the caller more: redis-py reads each reply by a coroutine with a timeout of its own.
# What Redis refuses of one result, such as to delete it while its disk is full, must not keep the others.
_FETCH = Script("""
local delete, found = tonumber(ARGV[1]), {}
for i = 1, delete do redis.pcall('UNLINK', KEYS[i]) end
for i = delete + 1, #KEYS do found[i - delete] = redis.pcall('HGETALL', KEYS[i]) end
return found
""")


def fetching(keys: Sequence[str], delete: Sequence[str] = ()) -> Call:
    """The call that reads result hashes; its reply has the fields of each (see `fields_of`), or an error.

    Args:
        keys: Of results to read.
        delete: Keys of results to delete.
    """
    return Call(_FETCH, [*delete, *keys], [len(delete)])


def fields_of(reply: Sequence[bytes]) -> dict[bytes, bytes]:
    """Fields of a hash, of which Redis gives a script names and values in turn; none if it is not there."""
    return dict(zip(reply[::2], reply[1::2], strict=True))
