"""As fast as possible through Redis: requests leave and results come in pipelines, with a fixed number on their way.

The payloads are encoded once. This is what a client in any language can do with docs/protocol.md.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import redis

from cluster_serving.bench import payload
from cluster_serving.bench.target import Failed, Where
from cluster_serving.client.connection import connect
from cluster_serving.client.errors import ServingError
from cluster_serving.client.inputs import Array
from cluster_serving.client.mailbox import RECHECK, new_channel, uris_in
from cluster_serving.client.protocol import request_fields, result_key
from cluster_serving.client.results import decode_result

if TYPE_CHECKING:
    from cluster_serving.bench.generator import Load
    from cluster_serving.bench.recorder import Recorder

CHUNK = 128
"""Most commands of one pipeline."""


def pipelined(where: Where, load: Load, recorder: Recorder) -> None:
    """Keep `load.concurrency` requests on their way until the recorder wants no more, then wait for the rest."""
    client = connect("", 0, where.url)
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
        self._client = client
        self._pubsub = pubsub
        self._fields = [request_fields("-", record, channel) for record in where.records]
        self._prefix = uuid.uuid4().hex
        self._open: dict[bytes, tuple[float, int]] = {}
        self._number = 0

    def run(self) -> None:
        heard = time.perf_counter()
        while self._recorder.wants_more or self._open:
            self._send()
            uris = self._announced()
            if uris:
                heard = time.perf_counter()
            elif time.perf_counter() - heard > RECHECK:
                # A message may be lost, a result is not.
                uris = list(self._open)
            for start in range(0, len(uris), CHUNK):
                self._fetch(uris[start : start + CHUNK])
            if time.perf_counter() - heard > self._where.timeout:
                break
        for uri in self._open:
            self._recorder.lost(uri)

    def _send(self) -> None:
        while len(self._open) < self._depth and self._recorder.wants_more:
            started = time.perf_counter()
            with self._client.pipeline(transaction=False) as pipeline:
                for _ in range(min(CHUNK, self._depth - len(self._open))):
                    uri = f"{self._prefix}{self._number}"
                    self._number += 1
                    if (taken := self._recorder.send(uri.encode())) is None:
                        break
                    self._open[uri.encode()] = started, taken[1]
                    pipeline.xadd(self._where.job, self._fields[taken[1]] | {"uri": uri})  # type: ignore[arg-type]
                pipeline.execute()
            if self._depth > 4 * CHUNK:
                # A long queue is filled while the first answers are taken, or their latency would count the filling.
                return

    def _announced(self) -> list[bytes]:
        uris = []
        may_send = len(self._open) < self._depth and self._recorder.wants_more
        message = self._pubsub.get_message(timeout=0.001 if may_send else RECHECK)
        while message is not None:
            if message["type"] == "message":
                uris += [uri for uri in uris_in(message["data"]) if uri in self._open]
            message = self._pubsub.get_message(timeout=0) if len(uris) < CHUNK else None
        return uris

    def _fetch(self, uris: list[bytes]) -> None:
        keys = [result_key(self._where.job, uri.decode()) for uri in uris]
        with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hgetall(key)
            pipeline.unlink(*keys)
            *results, _ = pipeline.execute()
        for uri, fields in zip(uris, results, strict=True):
            if not fields:
                continue
            started, variant = self._open.pop(uri)
            if b"code" in fields:
                self._recorder.failed(uri, fields[b"code"].decode())
            else:
                self._recorder.answered(uri, started, variant, lambda fields=fields: _read(fields))  # type: ignore[misc]


def _read(fields: dict[bytes, bytes]) -> Array:
    try:
        return payload.numbers(decode_result(fields))
    except ServingError as error:
        raise Failed(error.code) from None
