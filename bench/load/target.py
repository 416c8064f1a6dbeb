"""What is measured: a job through one of the ways of asking it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.http_client import HttpClient, encode_request
from cluster_serving.bench.load.payload import Record
from cluster_serving.client.dispatcher import Dispatcher
from cluster_serving.protocol.connection import connect_async
from cluster_serving.protocol.errors import ResultTimeout, ServingError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.results import decode_result


class Lost(Exception):
    """Nothing came back for a request."""


class Failed(Exception):
    """A request was answered with an error; the text is its code."""


@dataclass(frozen=True)
class Where:
    """The address of what is measured, and what to send; goes to the generator processes.

    Attributes:
        kind: `redis`; `predict` (the original's JSON), `v2` (KServe, binary tensors), `v2-json`,
            `rows` (JSON rows without names)
            or `raw` (the bytes of the input) over HTTP.
        url: Of Redis, or the full one of the HTTP request.
        job: `jobName`, for `redis`.
        records: The different requests.
        timeout: Seconds after which a request counts as lost.
        headers: Further HTTP headers.
        batched: Tensors of `v2` have a batch dimension.
    """

    kind: str
    url: str
    job: str
    records: Sequence[Record]
    timeout: float = 30.0
    headers: Mapping[str, str] = field(default_factory=dict)
    batched: bool = True


class Target(Protocol):
    """Something that answers; used by one event loop."""

    async def ask(self, variant: int) -> object:
        """Send request `variant` and wait for its answer.

        Raises:
            Failed: It was answered with an error.
            Lost: Nothing came back.
        """

    def read(self, answer: object) -> Array:
        """All numbers of an answer, flat."""

    async def close(self) -> None:
        """Disconnect."""


def open_target(where: Where) -> Target:
    """Connect lazily; call it in the event loop."""
    return RedisTarget(where) if where.kind == "redis" else HttpTarget(where)


class RedisTarget:
    """A job through the native client; `Exchange` is what asyncio applications use to have many requests in flight."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._exchange = Dispatcher(connect_async(url=where.url))

    async def ask(self, variant: int) -> object:
        """See `Target`."""
        try:
            return await self._exchange.request(self._where.job, self._where.records[variant], self._where.timeout)
        except ResultTimeout as error:
            raise Lost(str(error)) from None
        except ServingError as error:
            raise Failed(error.code) from None

    def read(self, answer: object) -> Array:
        """See `Target`."""
        try:
            return payload.numbers(decode_result(answer))  # type: ignore[arg-type]
        except ServingError as error:
            raise Failed(error.code) from None

    async def close(self) -> None:
        """See `Target`."""
        await self._exchange.close()


class HttpTarget:
    """A job through a front end, or a peer."""

    def __init__(self, where: Where) -> None:
        self._timeout = where.timeout
        self._kind = where.kind
        self._client = HttpClient(where.url)
        self._requests = [encode_request(where.url, *_body(where, record)) for record in where.records]

    async def ask(self, variant: int) -> object:
        """See `Target`."""
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._client.ask(self._requests[variant])
        except (TimeoutError, OSError) as error:
            raise Lost(f"{type(error).__name__}: {error}") from None
        if response.status != 200:
            raise Failed(f"HTTP {response.status}")
        return response

    def read(self, answer: object) -> Array:
        """See `Target`."""
        body = answer.body  # type: ignore[attr-defined]
        if self._kind.startswith("v2"):
            return payload.read_v2(body, answer.v2_length)  # type: ignore[attr-defined]
        if self._kind == "predict":
            return payload.read_predictions(body)
        return payload.numbers(body.decode())

    async def close(self) -> None:
        """See `Target`."""
        await self._client.close()


def _body(where: Where, record: Record) -> tuple[bytes, dict[str, str]]:
    headers = dict(where.headers)
    if where.kind == "v2":
        body, more = payload.v2_body(record, where.batched)
        return body, headers | more
    if where.kind == "raw":
        return payload.raw_body(record), {"Content-Type": "application/octet-stream"} | headers
    encode = {"predict": payload.predict_body, "rows": payload.rows_body, "v2-json": payload.v2_json_body}[where.kind]
    return encode(record), headers


async def references(where: Where) -> list[Array]:
    """Ask every different request once, alone.

    Raises:
        Failed: One was answered with an error.
        Lost: One was not answered.
    """
    target = open_target(where)
    try:
        return [target.read(await target.ask(variant)) for variant in range(len(where.records))]
    finally:
        await target.close()
