"""The access log: a line per request over HTTP or gRPC, without payloads."""

import itertools
import logging
import re
import secrets

from cluster_serving.frontend.caller import trace_id

log = logging.getLogger("cluster_serving.access")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:@/+=-]{1,128}")


class AccessLog:
    """Writes the lines, and makes ids for requests that bring none.

    Attributes:
        enabled: False if no lines are wanted.
    """

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._start = secrets.token_hex(6).encode()
        self._numbers = itertools.count(1)

    def request_id(self, sent: bytes) -> bytes:
        """Return the id that a client sent; a new one if it sent none, or one that cannot be in a line."""
        return sent if _REQUEST_ID.fullmatch(sent) else b"%b-%x" % (self._start, next(self._numbers))

    def write(self, method: str, path: str, status: int, seconds: float, request_id: bytes, client: str) -> None:
        """Write a line; `client` is the name of an API key, empty for none."""
        milliseconds = round(1000 * seconds, 1)
        caller = client or "-"
        trace = trace_id.get()
        shown_trace = f" trace={trace}" if trace else ""
        log.info(
            "%s %s %d %.1f ms id=%s client=%s%s",
            *(method, path, status, milliseconds, request_id.decode(), caller, shown_trace),
            extra={
                "fields": {
                    "method": method,
                    "path": path,
                    "status": status,
                    "milliseconds": milliseconds,
                    "client": caller,
                }
            },
        )
