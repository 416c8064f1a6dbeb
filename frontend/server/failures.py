"""The log of answers with a status of 5xx: a line for each, within a limit for each reason."""

import logging
import re

from cluster_serving.frontend.caller import has_own_limit, request_id, trace_id
from cluster_serving.frontend.errors import HttpVersionNotSupported, NotSupported
from cluster_serving.protocol.errors import DeadlineExceeded, InferenceFailed, ResultTimeout, ServingError
from cluster_serving.protocol.log_limit import LogLimit

log = logging.getLogger(__name__)

_LONGEST = 500
_NUMBER = re.compile(r"\d+(\.\d+)?")
_limit = LogLimit()


def note(error: ServingError) -> None:
    """Log the error of an answer if the server is to blame, unless its reason has had its lines."""
    if error.http_status < 500 or isinstance(error, NotSupported | HttpVersionNotSupported):
        return
    if isinstance(error, ResultTimeout | DeadlineExceeded) and has_own_limit.get():
        # The client has waited for less time than the front end allows.
        return
    message = " ".join(error.message[:_LONGEST].split())
    # Numbers such as the milliseconds of a wait differ from request to request.
    left_out = _limit.take((error.code, _NUMBER.sub("0", message)))
    if left_out is None:
        return
    # Messages of models and handlers may quote the request.
    reason = "" if isinstance(error, InferenceFailed) else f": {message}"
    known = {"request": request_id.get(), "trace": trace_id.get()}
    marks = "".join(f" {name}={value}" for name, value in known.items() if value)
    log.error("%s (%d)%s%s%s", error.code, error.http_status, reason, marks, left_out)
