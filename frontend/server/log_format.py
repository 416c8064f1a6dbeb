"""The lines of the log of a front end: text, or JSON."""

import json
import logging
import time

from cluster_serving.frontend.caller import request_id, trace_id

TEXT = "%(asctime)s %(levelname)s %(message)s"


class JsonFormatter(logging.Formatter):
    """Writes a line of JSON, with the ids of the request and the trace that a process is at work on."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line."""
        line = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "request": request_id.get(),
            "trace": trace_id.get(),
            "stack": self.formatException(record.exc_info) if record.exc_info else "",
            **getattr(record, "fields", {}),
        }
        return json.dumps({name: value for name, value in line.items() if value != ""})


def use_json() -> None:
    """Write lines of JSON from now on."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
