"""The log of failed requests: a line for each, without what its client sent."""

import logging
from collections.abc import Mapping

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.protocol.entry import Entry, shown
from cluster_serving.protocol.log_limit import LogLimit
from cluster_serving.protocol.trace import TraceContext

log = logging.getLogger(__name__)

_limit = LogLimit()


def note(entry: Entry, codes: Mapping[int, str], options: RedisOptions, slot: int) -> None:
    """Log that a request has failed, or leave the line out if there are many with this code.

    An entry with requests of several callers has a line for each that has failed.

    Args:
        entry: Entry of the request.
        codes: Codes of the errors of the records that have failed, by index; at least one.
        options: Options of the source or sink.
        slot: Index of the slot.
    """
    uris = entry.uris
    if len(uris) > 1:
        for index, code in codes.items():
            _note(entry, uris[index], code, options, slot)
    else:
        _note(entry, entry.uri, next(iter(codes.values())), options, slot)


def note_all(entry: Entry, code: str, options: RedisOptions, slot: int) -> None:
    """Log that a request, or all those in an entry, have failed; see `note`."""
    note(entry, dict.fromkeys(range(entry.record_count), code), options, slot)


def _note(entry: Entry, uri: str, code: str, options: RedisOptions, slot: int) -> None:
    left_out = _limit.take((options.name, code))
    if left_out is None:
        return
    trace = TraceContext.parse(entry.traceparent.decode("latin1"))
    log.warning(
        "request failed: %s job=%s version=%s slot=%d request=%s trace=%s%s",
        *(code, options.job, options.version, slot, shown(uri), trace.trace if trace else "-", left_out),
    )
