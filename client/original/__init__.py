"""Drop-in replacement of the original's Python client: the same names and return values, on top of ours.

    python -m cluster_serving.client.original program.py its arguments

runs a program in which `from zoo.serving.client import …` and `from bigdl.serving.client import …` give the classes of
this module. A program of several processes, or one that something else starts, calls `install` before those imports.

Kept are "[]" for a missing result, "NaN" for a failed request, float32 arrays, and the calls of all versions from 0.7
to 2.4. Faults of the original are corrected: `predict` keeps its timeout, a uri may hold `:`, filtered results can be
read, images and tensors may share a request, and a request that cannot be queued raises an error. Nothing is printed.
"""

from __future__ import annotations

import base64
import datetime
import importlib.util
import json
import sys
import time
import urllib.request
import uuid
from contextlib import suppress
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import redis
from redis.exceptions import RedisError

from cluster_serving.client import queues
from cluster_serving.client.fetch import SCAN_COUNT, batched
from cluster_serving.client.original import early
from cluster_serving.client.original.predictions import predicted
from cluster_serving.client.original.values import (
    MISSING,
    OriginalResult,
    as_original,
    as_sent,
    encode_png,
    failed,
)
from cluster_serving.client.result import Result
from cluster_serving.client.sending.convert import inputs_of, to_input
from cluster_serving.protocol.errors import DeadlineExceeded, InvalidInput, ResultTimeout, ServingError
from cluster_serving.protocol.host.loopback import is_loopback
from cluster_serving.protocol.inputs import Array, Image
from cluster_serving.protocol.keys import DEFAULT_JOB, RESULT_PREFIX, image_result_key, to_bytes, to_text
from cluster_serving.protocol.original import arrow as original_arrow
from cluster_serving.protocol.original import image_stream
from cluster_serving.protocol.redis.connection import translated

MODULES = ("zoo.serving.client", "bigdl.serving.client", "zoo.serving.api")
"""Names of the original's client module: up to 0.11, from 2.0 on, and in the first guide."""

_OPTIONAL = ("cv2", "httpx", "yaml")

# Programs with `from zoo.serving.client import *` use what the original had imported.
__all__ = [
    "API",
    "RESULT_PREFIX",
    "InputQueue",
    "OutputQueue",
    "base64",
    "datetime",
    "http_json_to_ndarray",
    "http_response_to_ndarray",
    "json",
    "np",
    "pa",
    "perdict",
    "redis",
    "time",
    "uuid",
]
__all__ += [name for name in _OPTIONAL if importlib.util.find_spec(name)]

_HTTP_TIMEOUT = 60.0


def __getattr__(name: str) -> ModuleType:
    if name in _OPTIONAL:
        return importlib.import_module(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class API:
    """Base of `InputQueue` and `OutputQueue`: the original client's public attributes.

    Args:
        host: Redis host, default `localhost`.
        port: Redis port, default 6379.
        name: The job's `jobName`; by default that of a `config.yaml` of 0.7 or 0.8 in the current folder, or else
            `serving_stream`.
        redis_options: Further arguments of `client.queues.OutputQueue`.
    """

    def __init__(
        self, host: str | None = None, port: int | str | None = None, name: str | None = None, **redis_options: Any
    ) -> None:
        found = self._early = early.find()
        self.name = name or (found.job if found else DEFAULT_JOB)
        if found and not (host or port or redis_options):
            host, port = found.host, found.port
        self._missing = "{}" if found else MISSING
        self._results = queues.OutputQueue(host, port, self.name, **redis_options)
        self.host, self.port, self.db = self._results.host, self._results.port, self._results.db


class OutputQueue(API):
    """Reads results as the original's class does; see `API` for arguments."""

    def query(self, uri: str, delete: bool = False) -> OriginalResult:
        """Return the result of a request: "[]" if it is missing, "NaN" if it failed, text for `enqueue_image`.

        In a program of 0.7 or 0.8, a missing result is "{}", and any other is text.
        """
        try:
            result = self._results.query(uri, delete)
        except ServingError as error:
            return failed(error)
        return self._image_result(uri, delete) if result is None else self._original(result)

    def query_and_delete(self, uri: str) -> OriginalResult:
        """Return the result of a request as `query` does, and delete the result."""
        return self.query(uri, delete=True)

    def dequeue(self) -> dict[str, OriginalResult]:
        """Return all results by uri, and delete them."""
        prefix = image_result_key("")
        with translated(self.db):
            keys = list(self.db.scan_iter(f"{prefix}*", _type="HASH"))
        uris = [to_text(key).removeprefix(prefix) for key in keys]
        images = {uri: self._image_result(uri, delete=False) for uri in uris}
        results = {
            uri: failed(result.error) if result.error else self._original(result)
            for uri, result in self._results.dequeue().items()
        }
        # Other programs may have hashes of such names.
        images = {uri: result for uri, result in images.items() if result != self._missing}
        # Deleted last, so that a failure loses no results.
        with suppress(RedisError):
            for batch in batched(map(to_bytes, map(image_result_key, images)), SCAN_COUNT):
                self.db.delete(*batch)
        return results | images

    def _original(self, result: Result) -> OriginalResult:
        return early.text_of(result, self._early.ranking) if self._early else as_original(result)

    def _image_result(self, uri: str, delete: bool) -> str:
        key = to_bytes(image_result_key(uri))
        with translated(self.db), self.db.pipeline() as pipeline:
            pipeline.hget(key, "value")  # type: ignore[arg-type]
            if delete:
                pipeline.delete(key)
            value: bytes | None = pipeline.execute()[0]
        return self._missing if value is None else value.decode()

    def get_ndarray_from_b64(self, b64str: str | bytes) -> Array | list[Array]:
        """Return the outputs in the field `value` of a result hash."""
        outputs = original_arrow.decode_result(b64str)
        return outputs[0] if len(outputs) == 1 else outputs


class InputQueue(API):
    """Queues requests as the original's class does.

    Args:
        address: URL of an HTTP front end for `predict`; or, as in 0.9, the Redis host.
        port: Redis port, default 6379.
        sync: Accepted for the examples in the original's guides, and ignored.
        frontend_url: URL of an HTTP front end for `predict`.
        host: Redis host, default `localhost`.
        name: The job's `jobName`; see `API`.
        redis_options: Further arguments of `client.queues.InputQueue`.
    """

    def __init__(
        self,
        address: str | None = None,
        port: int | str | None = None,
        sync: bool = True,
        frontend_url: str | None = None,
        *,
        host: str | None = None,
        name: str | None = None,
        **redis_options: Any,
    ) -> None:
        if address and "://" in address:
            frontend_url = address
        elif address:
            host = address
        self.frontend_url = frontend_url
        super().__init__(host, port, name, **redis_options)
        self._queue = queues.InputQueue(self.host, self.port, self.name, **redis_options)
        self.output_queue = OutputQueue(host, port, name, **redis_options)

    def enqueue(self, uri: str, /, **data: object) -> None:
        """Queue a request.

        Raises:
            ServingError: If the request was not queued. The original printed a message and went on.
        """
        self._queue.enqueue(uri, **as_sent(data))

    def enqueue_image(self, uri: str, img: object) -> None:
        """Queue an image for the job `image_stream`, as in 0.7 and 0.8: a path, or an array from `cv2.imread`."""
        image = encode_png("image", img) if isinstance(img, np.ndarray) else to_input("image", img)
        if not isinstance(image, Image):
            raise InvalidInput(f"the image is of type {type(img).__name__}; expected a path or an array")
        with translated(self.db):
            self.db.xadd(image_stream.STREAM, {"uri": uri, "image": base64.b64encode(image.data)})

    def predict(self, request_data: object, timeout: float = 5) -> OriginalResult:
        """Queue a request, wait for its result and delete the result.

        Args:
            request_data: JSON text of `instances`, a dict of inputs, or one input, which gets the name `t`. For a front
                end: JSON text.
            timeout: Seconds to wait.

        Returns:
            See `query`; "[]" if no result came in time. From a front end: the text of the first prediction.
        """
        if self.frontend_url:
            return self._ask_front_end(str(request_data))
        inputs = as_sent(inputs_of(request_data))
        try:
            return as_original(self._queue.predict(inputs, timeout))
        except (ResultTimeout, DeadlineExceeded):
            return MISSING
        except ServingError as error:
            return failed(error)

    def data_to_b64(self, **data: object) -> str:
        """Return the field `data` of a request in the original's encoding."""
        return original_arrow.encode_request(as_sent(data))

    @staticmethod
    def base64_encode_image(img: bytes) -> str:
        """Return the base64 text of bytes."""
        return base64.b64encode(img).decode()

    def _ask_front_end(self, body: str) -> str:
        prediction: str = json.loads(_post(str(self.frontend_url), body))["predictions"][0]
        return prediction.removeprefix("{value=").removesuffix("}") if prediction.startswith("{value=") else prediction


def perdict(frontend_url: str, request_str: str) -> None:
    """Send a request to a front end and ignore the response. The original spells the name so."""
    _post(frontend_url, request_str)


def _post(frontend_url: str, body: str) -> bytes:
    # Our front end then writes predictions in the original's form; the original's front end ignores the parameter.
    url = f"{frontend_url.rstrip('/')}/predict?responseFormat=zoo-0.9"
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})  # noqa: S310
    direct = [urllib.request.ProxyHandler({})] if is_loopback(urlsplit(url).hostname or "") else []
    with urllib.request.build_opener(*direct).open(request, timeout=_HTTP_TIMEOUT) as response:
        content: bytes = response.read()
    return content


def http_json_to_ndarray(json_str: str) -> OriginalResult:
    """Return the first prediction in the body of a front end's response, as `OutputQueue.query` does.

    The body may have the text of 0.10 and later, that of 0.9, or the values of our /predict.
    """
    return predicted(json.loads(json_str)["predictions"][0])


def http_response_to_ndarray(response: Any) -> OriginalResult:
    """Return the first prediction in a response of `requests` or `httpx`; "[]" for an error."""
    return http_json_to_ndarray(response.text) if response.status_code == 200 else MISSING


def install() -> None:
    """Make imports of the original's client module give this module, in this process. Other modules are unchanged."""
    this = sys.modules[install.__module__]
    for name in MODULES:
        parent, _, child = name.rpartition(".")
        for package in (parent.partition(".")[0], parent):
            _ensure_package(package)
        sys.modules[name] = this
        setattr(sys.modules[parent], child, this)


def _ensure_package(name: str) -> None:
    """Import a package; if it is not installed, create an empty one."""
    if name in sys.modules:
        return
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name)
        return
    module = sys.modules[name] = ModuleType(name)
    module.__path__ = []
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
