"""The log of failed requests: a line for each, without what its client sent."""

import logging

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import ERRORS, ServingError
from cluster_serving.protocol.log_limit import LogLimit
from cluster_serving.protocol.traces.trace import TraceContext

log = logging.getLogger(__name__)

_limit = LogLimit()


def note(entry: Entry, code: str, options: RedisOptions, slot: int) -> None:
    """Log that a request has failed, or leave the line out if there are many with this code.

    A request that its client got wrong or withdrew is no warning: nothing is to be done here.
    """
    left_out = _limit.take((options.name, code))
    if left_out is None:
        return
    trace = TraceContext.parse(entry.traceparent.decode("latin1"))
    log.log(
        logging.INFO if ERRORS.get(code, ServingError).http_status < 500 else logging.WARNING,
        "request failed: %s job=%s version=%s slot=%d request=%s trace=%s%s",
        *(code, options.job, options.version, slot, entry.shown_uri, trace.trace if trace else "-", left_out),
    )
