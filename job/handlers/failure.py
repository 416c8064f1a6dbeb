"""Errors of a handler: a line for the client, and the traceback for the operator."""

import logging
import traceback
from pathlib import Path
from types import TracebackType

from cluster_serving.job.failure import CodeFailed
from cluster_serving.job.models.base import cause
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ServingError
from cluster_serving.protocol.log_limit import LogLimit

log = logging.getLogger(__name__)

FAILURES = (Exception, SystemExit)
"""What the code of a handler may raise; a library that exits fails its record, not the process."""

_OURS = str(Path(__file__).parent)

_limit = LogLimit(most=1)


class RecordFailed(InvalidInput):
    """One record of a batch is wrong; a handler's `predict` raises it, so that the others need not be searched.

    The client of the record gets the message, as that of any `InvalidInput`.

    Args:
        index: Position of the record in the batch.
        message: What is wrong with it.
    """

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


class HandlerFailed(CodeFailed):
    """A handler raised an exception.

    Attributes:
        traceback: The stack from the handler's own frames on.
        index: Position of the record in its batch that caused the exception, if the exception tells it.
    """

    index: int | None = None

    @classmethod
    def of(cls, error: BaseException, step: str) -> "HandlerFailed":
        """Return the error of a method of a handler, which `step` names."""
        text = cause(error) if isinstance(error, InferenceFailed) else f"{type(error).__name__}: {cause(error)}"
        failed = cls(f"the handler failed in {step}: {text}")
        failed.index = getattr(error, "index", None)
        failed.traceback = "".join(traceback.format_exception(type(error), error, own_frames(error.__traceback__)))
        return failed

    def report(self) -> None:
        """See `CodeFailed.report`; one place is logged once a minute, as clients may cause any number."""
        # The last frame, without the message, which may quote the request.
        place = self.traceback.rpartition('  File "')[2].partition("\n")[0]
        left_out = _limit.take(place)
        if left_out is not None:
            log.error("%s (this place is logged once a minute)%s\n%s", self, left_out, self.traceback)


def error_of(error: BaseException, step: str) -> ServingError:
    """Return the error for an exception of a method of a handler, which `step` names; `InvalidInput` is for clients."""
    return error if isinstance(error, InvalidInput) else HandlerFailed.of(error, step)


def own_frames(stack: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of this package that called the handler."""
    own = stack
    while own is not None and own.tb_frame.f_code.co_filename.startswith(_OURS):
        own = own.tb_next
    return own or stack
