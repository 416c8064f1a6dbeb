"""What goes with a request of a queue: the file of large inputs, and the span of sending it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Optional

from cluster_serving.client.sending import trace
from cluster_serving.protocol.payloads.files import PayloadFolders, write
from cluster_serving.protocol.scripts import Procedure
from cluster_serving.protocol.tensors import Inputs

Store = Callable[[Sequence["bytes | memoryview"]], Optional[str]]
"""Writes large inputs into a file, and returns its name."""


class Outlet:
    """Prepares what goes with requests; may be shared by threads and event loops."""

    def __init__(self) -> None:
        self._folders = PayloadFolders()

    def open(self, job: str, inputs: Inputs) -> Procedure[Parcel]:
        """Find the folder for the inputs of a request, and begin the span of sending it."""
        folder = yield from self._folders.find(job, inputs)
        span = trace.begin(job)

        def close(fields: Mapping[str, object], error: BaseException | None) -> None:
            if error is not None:
                self._folders.clean_up(job, folder, fields, error)
            if span:
                span.end(getattr(error, "code", type(error).__name__) if error else "")

        return Parcel(partial(write, folder) if folder else None, span.traceparent if span else "", close)


class Parcel:
    """What goes with one request.

    Attributes:
        store: Writes its inputs into a file; None if Redis carries them.
        traceparent: Span of sending it, if its trace is sampled; else empty.
        close: Ends the span. With an error, for which the request with these fields was not queued, its file goes.
    """

    def __init__(
        self,
        store: Store | None,
        traceparent: str,
        close: Callable[[Mapping[str, object], BaseException | None], None],
    ) -> None:
        self.store, self.traceparent, self.close = store, traceparent, close
