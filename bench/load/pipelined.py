"""As many requests as possible through Redis: they leave in pipelines, and results come in messages.

The commands that queue requests are encoded once. A client in any language can do the same with
docs/reference/protocol.md.
"""

import itertools
import time
import uuid
from collections.abc import Sequence
from typing import Any

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.recorder import LoadRecorder
from cluster_serving.bench.load.target import Endpoint, read_result
from cluster_serving.client.announcements import RECHECK, new_channel, replies_in
from cluster_serving.protocol.entry import RESULT, request_fields
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.redis.connection import connect
from cluster_serving.protocol.results import Fields
from cluster_serving.protocol.scripts import flat

_PIPELINE = 128
"""Most requests of one pipeline."""


def pipelined(endpoint: Endpoint, depth: int, recorder: LoadRecorder) -> None:
    """Keep `depth` requests in flight until the recorder wants no more, then wait for the rest."""
    with connect("", 0, endpoint.url, endpoint.job) as client, client.pubsub() as pubsub:
        _Pipeline(endpoint, depth, recorder, client, pubsub).run()


class _Pipeline:
    # redis-py does not type what it reads.
    def __init__(self, endpoint: Endpoint, depth: int, recorder: LoadRecorder, client: Any, pubsub: Any) -> None:
        self._endpoint = endpoint
        self._depth = depth
        self._recorder = recorder
        self._client = client
        self._pubsub = pubsub
        channel = new_channel(endpoint.job)
        pubsub.subscribe(channel)
        pubsub.get_message(timeout=5)
        self._connection = _Connection(client)
        self._commands = [self._command(record, channel) for record in endpoint.records]
        prefix = uuid.uuid4().hex.encode()
        self._uris = (b"%s%d" % (prefix, number) for number in itertools.count())
        self._open: dict[bytes, tuple[float, int]] = {}
        self._answered: list[str] = []

    def run(self) -> None:
        last_reply = time.perf_counter()
        while self._recorder.wants_more or self._open:
            self._send()
            replies = self._receive()
            if replies:
                last_reply = time.perf_counter()
            elif time.perf_counter() - last_reply > RECHECK:
                # A message may be lost; the results are in Redis nevertheless.
                replies = {uri: {} for uri in self._open}
            self._take(replies)
            if time.perf_counter() - last_reply > self._endpoint.timeout:
                break
        for uri in self._open:
            self._recorder.lost(uri)
        self._connection.send(self._deletions())
        self._connection.close()

    def _command(self, record: payload.Record, channel: str) -> bytes:
        """Return the encoded command that queues a record, up to its uri, which is the last argument."""
        fields = request_fields("-", record, channel, reply_with=RESULT)
        del fields["uri"]
        command = self._connection.packed("XADD", self._endpoint.job, "*", *flat(fields), "uri", "")
        return command.removesuffix(b"$0\r\n\r\n")

    @property
    def _may_send(self) -> bool:
        return len(self._open) < self._depth and self._recorder.wants_more

    def _send(self) -> None:
        while self._may_send:
            started = time.perf_counter()
            commands = self._deletions()
            for _ in range(min(_PIPELINE, self._depth - len(self._open))):
                uri = next(self._uris)
                if (taken := self._recorder.send(uri)) is None:
                    break
                self._open[uri] = started, taken[1]
                commands.append(b"%s$%d\r\n%s\r\n" % (self._commands[taken[1]], len(uri), uri))
            self._connection.send(commands)
            if self._depth > 4 * _PIPELINE:
                # Answers are read while a long queue is filled; otherwise their latency would count the filling.
                return

    def _deletions(self) -> list[bytes]:
        answered, self._answered = self._answered, []
        return [self._connection.packed("UNLINK", *answered)] if answered else []

    def _receive(self) -> dict[bytes, Fields]:
        """Return the answers in messages by uri; those without fields have to be fetched."""
        replies: dict[bytes, Fields] = {}
        message = self._pubsub.get_message(timeout=0.001 if self._may_send else RECHECK)
        while message is not None:
            if message["type"] == "message":
                replies |= replies_in(message["data"])
            message = self._pubsub.get_message(timeout=0) if len(replies) < _PIPELINE else None
        return replies

    def _take(self, replies: dict[bytes, Fields]) -> None:
        missing = [uri for uri, fields in replies.items() if not fields and uri in self._open]
        for start in range(0, len(missing), _PIPELINE):
            replies |= self._fetch(missing[start : start + _PIPELINE])
        for uri, fields in replies.items():
            if not fields or uri not in self._open:
                continue
            started, variant = self._open.pop(uri)
            self._answered.append(JobKeys(self._endpoint.job).native_result(uri.decode()))
            if b"code" in fields:
                self._recorder.failed(uri, fields[b"code"].decode())
            else:
                self._recorder.answered(uri, started, variant, lambda fields=fields: read_result(fields))  # type: ignore[misc]

    def _fetch(self, uris: Sequence[bytes]) -> dict[bytes, Fields]:
        with self._client.pipeline(transaction=False) as pipeline:
            for uri in uris:
                pipeline.hgetall(JobKeys(self._endpoint.job).native_result(uri.decode()))
            return dict(zip(uris, pipeline.execute(), strict=True))


class _Connection:
    """A connection that reads replies when the next commands leave; Redis and the generator work in parallel."""

    def __init__(self, client: Any) -> None:
        self._connection: Any = client.connection_pool.make_connection()
        self._connection.connect()
        self._unread = 0

    def packed(self, *command: Any) -> bytes:
        return b"".join(self._connection.pack_command(*command))

    def send(self, commands: Sequence[bytes]) -> None:
        """Send packed commands.

        Raises:
            redis.RedisError: If Redis cannot be reached, or refused one of the commands before.
        """
        self._read_replies()
        self._connection.send_packed_command([b"".join(commands)], check_health=False)
        self._unread = len(commands)

    def close(self) -> None:
        self._read_replies()
        self._connection.disconnect()

    def _read_replies(self) -> None:
        while self._unread:
            self._unread -= 1
            self._connection.read_response()
