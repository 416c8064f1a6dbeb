"""Models with a key of another program under the name of one of their queues: their requests cannot be read."""

import logging
from collections.abc import Collection

import redis

from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.redis.connection import foreign_key

log = logging.getLogger(__name__)


class ForeignKeys:
    """The models of a slot that are not read because of such a key; a read of several streams fails with one of them.

    Args:
        client: Client of the job's Redis.

    Attributes:
        names: Names of the models.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.names: frozenset[str] = frozenset()

    def look(self, names: Collection[str]) -> bool:
        """Find them among the models of these names. Return True if there are others than before.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        streams = [(name, stream) for name in names for stream in JobKeys(name).streams]
        with self._client.pipeline(transaction=False) as pipeline:
            for _, stream in streams:
                pipeline.xlen(stream)
            replies = pipeline.execute(raise_on_error=False)
        found = {}
        for (name, stream), reply in zip(streams, replies, strict=True):
            if isinstance(reply, Exception):
                if not (remedy := foreign_key(reply)):
                    raise reply
                found[name] = f"{stream}: {reply}{remedy}"
        for name in found.keys() - self.names:
            log.error("model %s is not served, as Redis refuses to read %s", name, found[name])
        before, self.names = self.names, frozenset(found)
        return self.names != before
