"""What the launcher tells a person."""

import logging
from contextlib import contextmanager

from cluster_serving.launcher.command_log import log


class _Heard(logging.Handler):
    def __init__(self, said):
        super().__init__()
        self._said = said

    def emit(self, record):
        self._said.append(record.getMessage())


@contextmanager
def heard():
    """Provide the list of the messages within a block."""
    said = []
    handler = _Heard(said)
    log.addHandler(handler)
    try:
        yield said
    finally:
        log.removeHandler(handler)
