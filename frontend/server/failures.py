"""The log of answers with a status of 5xx: a line a minute for each reason, however many requests have it."""

import logging
import re
import time

from cluster_serving.protocol.errors import ServingError

log = logging.getLogger(__name__)

_EVERY = 60.0
_MOST_REASONS = 256
_LONGEST = 500
_NUMBER = re.compile(r"\d+(\.\d+)?")
# Reason → time of its last line, and number of answers since.
_told: dict[tuple[str, str], tuple[float, int]] = {}


def note(error: ServingError) -> None:
    """Log the error of an answer, unless it is the mistake of the client, or its reason was logged in this minute."""
    if error.http_status < 500:
        return
    now = time.monotonic()
    # Numbers differ from request to request, as of milliseconds waited.
    reason = error.code, _NUMBER.sub("0", error.message[:_LONGEST])
    at, count = _told.pop(reason, (-_EVERY, 0))
    if now - at < _EVERY:
        _told[reason] = at, count + 1
        return
    _told[reason] = now, 0
    if len(_told) > _MOST_REASONS:
        del _told[next(iter(_told))]
    more = f" ({count} more since the last line)" if count else ""
    # One line, whatever is in the message.
    log.error("%s (%d): %s%s", error.code, error.http_status, " ".join(error.message[:_LONGEST].split()), more)
