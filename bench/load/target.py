"""The ways of asking: a job through Redis, or a server through HTTP."""

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.http_client import HttpClient, Response, encode_request
from cluster_serving.bench.load.payload import Record
from cluster_serving.client.dispatching.dispatcher import Dispatcher
from cluster_serving.protocol.errors import ResultTimeout, ServingError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.redis.connection import connect_async
from cluster_serving.protocol.results import Fields, decode_outputs

_SHOWN = 1000
"""Bytes of an answer that are shown."""


class Lost(Exception):
    """No answer came to a request."""


class Failed(Exception):
    """A request was answered with an error; the text is its code.

    Attributes:
        answer: What the server said about it.
    """

    def __init__(self, code: str, answer: str) -> None:
        super().__init__(code)
        self.answer = answer


@dataclass(frozen=True)
class Endpoint:
    """The address that is measured and the requests to send; generator processes get a copy.

    Attributes:
        kind: `redis`; or over HTTP `predict` (the original's JSON), `v2` (KServe, binary tensors), `v2-json`,
            `rows` (JSON rows without names), `embeddings` (OpenAI's, of the texts `text`, by a model `bench`) or `raw`
            (the bytes of the input).
        url: Address of Redis, or of the HTTP request with its path.
        job: `jobName`, for `redis`.
        records: The different requests.
        timeout: Seconds after which a request counts as lost.
        headers: Further HTTP headers.
        batched: A request has several records of its input, along the first axis; over HTTP, but not for `raw`.
    """

    kind: str
    url: str
    job: str
    records: Sequence[Record]
    timeout: float = 30.0
    headers: Mapping[str, str] = field(default_factory=dict)
    batched: bool = False

    def open(self) -> "LoadTarget":
        """Return a target that connects at its first request; call it in the event loop."""
        return _RedisTarget(self) if self.kind == "redis" else _HttpTarget(self)


class LoadTarget(Protocol):
    """A server that answers; used by one event loop."""

    async def ask(self, variant: int) -> Any:
        """Send request `variant` and wait for its answer.

        Raises:
            Failed: If it is answered with an error.
            Lost: If no answer comes in time.
        """

    def read(self, answer: Any) -> Array:
        """Return all numbers of an answer, flat."""

    async def aclose(self) -> None:
        """Disconnect."""


class _RedisTarget:
    """A job through the native client; asyncio applications use `Dispatcher` to have many requests in flight."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._dispatcher = Dispatcher(connect_async(url=endpoint.url))

    async def ask(self, variant: int) -> Fields:
        endpoint = self._endpoint
        try:
            return await self._dispatcher.request(endpoint.job, endpoint.records[variant], endpoint.timeout)
        except ResultTimeout as error:
            raise Lost(str(error)) from None
        except ServingError as error:
            raise Failed(error.code, str(error)) from None

    def read(self, answer: Fields) -> Array:
        return read_result(answer)

    async def aclose(self) -> None:
        await self._dispatcher.close()


def read_result(fields: Fields) -> Array:
    """Return all numbers of a result hash, flat.

    Raises:
        Failed: If the result is an error.
    """
    try:
        return payload.numbers(decode_outputs(fields))
    except ServingError as error:
        raise Failed(error.code, str(error)) from None


class _HttpTarget:
    """A job through a front end, or another server."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._timeout = endpoint.timeout
        self._kind = endpoint.kind
        self._client = HttpClient(endpoint.url)
        self._requests = []
        for record in endpoint.records:
            body, headers = payload.encode(endpoint.kind, record, endpoint.batched)
            self._requests.append(encode_request(endpoint.url, body, {**endpoint.headers, **headers}))

    async def ask(self, variant: int) -> Response:
        try:
            response = await self._client.ask(self._requests[variant], self._timeout)
        except OSError as error:
            raise Lost(f"{type(error).__name__}: {error}") from None
        if response.status != 200:
            raise Failed(f"HTTP {response.status}", response.body[:_SHOWN].decode("utf8", "replace"))
        return response

    def read(self, answer: Response) -> Array:
        if self._kind.startswith("v2"):
            return payload.read_v2(answer.body, answer.v2_length)
        if self._kind == "predict":
            return payload.read_predictions(answer.body)
        if self._kind == "embeddings":
            return payload.numbers([item["embedding"] for item in json.loads(answer.body)["data"]])
        return payload.numbers(answer.body.decode())

    async def aclose(self) -> None:
        await self._client.close()


async def references(endpoint: Endpoint) -> list[Array]:
    """Ask every different request once, alone, and return the answers.

    Raises:
        Failed: If one is answered with an error.
        Lost: If one is not answered in time.
    """
    async with aclosing(endpoint.open()) as target:
        return [target.read(await target.ask(variant)) for variant in range(len(endpoint.records))]
