"""As fast as possible through Redis: requests leave in pipelines, results come in messages.

The commands that queue requests are made once. This is what a client in any language can do with docs/protocol.md.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import redis

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.target import Failed, Where
from cluster_serving.client.mailbox import RECHECK, new_channel, replies_in
from cluster_serving.protocol.connection import connect
from cluster_serving.protocol.entry import RESULT, request_fields
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.keys import result_key
from cluster_serving.protocol.results import Fields, decode_result
from cluster_serving.protocol.scripts import flat

if TYPE_CHECKING:
    from cluster_serving.bench.load.generator import Load
    from cluster_serving.bench.load.recorder import Recorder

CHUNK = 128
"""Most requests of one pipeline."""


def pipelined(where: Where, load: Load, recorder: Recorder) -> None:
    """Keep `load.concurrency` requests on their way until the recorder wants no more, then wait for the rest."""
    client = connect("", 0, where.url, where.job)
    channel = new_channel(where.job)
    with client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
        pubsub.subscribe(channel)
        pubsub.get_message(timeout=5)
        _Pipeline(where, load.concurrency, recorder, client, pubsub, channel).run()
    client.close()


class _Pipeline:
    def __init__(
        self,
        where: Where,
        depth: int,
        recorder: Recorder,
        client: redis.Redis,
        pubsub: redis.client.PubSub,
        channel: str,
    ) -> None:
        self._where = where
        self._depth = depth
        self._recorder = recorder
        self._client: Any = client
        self._pubsub = pubsub
        self._line = _Line(client)
        self._commands = [
            _without_uri(self._line.packed("XADD", where.job, "*", *_fields(record, channel), "uri", ""))
            for record in where.records
        ]
        self._prefix = uuid.uuid4().hex
        self._open: dict[bytes, tuple[float, int]] = {}
        self._taken: list[bytes] = []
        self._number = 0

    def run(self) -> None:
        heard = time.perf_counter()
        while self._recorder.wants_more or self._open:
            self._send()
            replies = self._announced()
            if replies:
                heard = time.perf_counter()
            elif time.perf_counter() - heard > RECHECK:
                # A message may be lost, a result is not.
                replies = {uri: {} for uri in self._open}
            self._take(replies)
            if time.perf_counter() - heard > self._where.timeout:
                break
        for uri in self._open:
            self._recorder.lost(uri)
        self._line.send(self._deletions())
        self._line.close()

    def _send(self) -> None:
        while len(self._open) < self._depth and self._recorder.wants_more:
            started = time.perf_counter()
            commands = self._deletions()
            for _ in range(min(CHUNK, self._depth - len(self._open))):
                uri = b"%s%d" % (self._prefix.encode(), self._number)
                self._number += 1
                if (taken := self._recorder.send(uri)) is None:
                    break
                self._open[uri] = started, taken[1]
                commands.append(b"%s$%d\r\n%s\r\n" % (self._commands[taken[1]], len(uri), uri))
            self._line.send(commands)
            if self._depth > 4 * CHUNK:
                # A long queue is filled while the first answers are taken, or their latency would count the filling.
                return

    def _deletions(self) -> list[bytes]:
        taken, self._taken = self._taken, []
        return [self._line.packed("UNLINK", *taken)] if taken else []

    def _announced(self) -> dict[bytes, Fields]:
        """Answers, and the uris of those that have to be fetched."""
        replies: dict[bytes, Fields] = {}
        may_send = len(self._open) < self._depth and self._recorder.wants_more
        message = self._pubsub.get_message(timeout=0.001 if may_send else RECHECK)
        while message is not None:
            if message["type"] == "message":
                replies |= replies_in(message["data"])
            message = self._pubsub.get_message(timeout=0) if len(replies) < CHUNK else None
        return replies

    def _take(self, replies: dict[bytes, Fields]) -> None:
        missing = [uri for uri, fields in replies.items() if not fields and uri in self._open]
        for start in range(0, len(missing), CHUNK):
            replies |= self._fetch(missing[start : start + CHUNK])
        for uri, fields in replies.items():
            if not fields or uri not in self._open:
                continue
            started, variant = self._open.pop(uri)
            self._taken.append(result_key(self._where.job, uri.decode()).encode())
            if b"code" in fields:
                self._recorder.failed(uri, fields[b"code"].decode())
            else:
                self._recorder.answered(uri, started, variant, lambda fields=fields: _read(fields))  # type: ignore[misc]

    def _fetch(self, uris: Sequence[bytes]) -> dict[bytes, Fields]:
        with self._client.pipeline(transaction=False) as pipeline:
            for uri in uris:
                pipeline.hgetall(result_key(self._where.job, uri.decode()))
            return dict(zip(uris, pipeline.execute(), strict=True))


class _Line:
    """A connection whose replies are read when the next commands leave, so that Redis and the generator both work."""

    def __init__(self, client: Any) -> None:
        # redis-py does not type what it reads.
        self._connection: Any = client.connection_pool.make_connection()
        self._connection.connect()
        self._unread = 0

    def packed(self, *command: Any) -> bytes:
        return b"".join(self._connection.pack_command(*command))

    def send(self, commands: Sequence[bytes]) -> None:
        """Send packed commands.

        Raises:
            redis.RedisError: Redis is gone, or refused one of the commands before.
        """
        self._settle()
        self._connection.send_packed_command([b"".join(commands)], check_health=False)
        self._unread = len(commands)

    def close(self) -> None:
        self._settle()
        self._connection.disconnect()

    def _settle(self) -> None:
        while self._unread:
            self._unread -= 1
            self._connection.read_response()


def _fields(record: payload.Record, channel: str) -> list[Any]:
    fields = request_fields("-", record, channel, reply_with=RESULT)
    del fields["uri"]
    return flat(fields)


def _without_uri(command: bytes) -> bytes:
    return command.removesuffix(b"$0\r\n\r\n")


def _read(fields: Fields) -> Array:
    try:
        return payload.numbers(decode_result(fields))
    except ServingError as error:
        raise Failed(error.code) from None
