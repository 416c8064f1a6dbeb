"""The command `cluster-serving-http`."""

import logging
import os
import sys
from collections.abc import Sequence

from cluster_serving.frontend import app
from cluster_serving.frontend.arguments import read as read_options
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import StartError
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server import log_format
from cluster_serving.frontend.server.admission import descriptors
from cluster_serving.frontend.server.admission.keys import new_key
from cluster_serving.frontend.server.processes import app_server, hot_restart
from cluster_serving.frontend.server.processes.worker import sockets_from_environment
from cluster_serving.frontend.server.processes.workers import Workers
from cluster_serving.protocol.errors import ServingError
from cluster_serving.settings.errors import SettingsError

__all__ = ["HttpOptions", "hot_restart", "main", "read_options"]


def main(given: Sequence[str] | None = None) -> None:
    """Run the front end until SIGTERM or SIGINT; without given arguments, with those of the process."""
    words = list(sys.argv[1:] if given is None else given)
    logging.basicConfig(level=logging.INFO, format=log_format.TEXT, stream=sys.stderr)
    # httpx would log the URLs of callbacks, whose query may hold a secret.
    for name in ("uvicorn", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # gRPC would log what clients do wrong, such as a compression that is off.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        if words[:1] == ["hash-key"]:
            _hash_key(words[1:])
            return
        app_server.run(_server(words))
    except SettingsError as error:
        _fail(str(error), 2)
    except (StartError, ServingError) as error:
        _fail(str(error), 1)


def _server(words: Sequence[str]) -> app_server.AppServer:
    """Return the server of this process: of the first one by its arguments, of a worker by the options of the first."""
    sockets = sockets_from_environment()
    options = HttpOptions.from_json(sys.stdin.read()) if sockets else read_options(words)
    if options.log_format == "json":
        log_format.use_json()
    if sockets:
        return app.make_worker(FrontEnd(options), sockets)
    front = FrontEnd(descriptors.fitted(options))
    count = front.options.workers - 1
    # Without -P, the files of the current folder could shadow Python's packages; Python 3.10 does not know it.
    python = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]
    command = [*python, "-m", "cluster_serving.frontend.main"]
    workers = Workers(count, command, front.options.to_json().encode()) if count else None
    return app.make(front, _say, hot_restart.HotRestart.from_environment(), workers)


def _hash_key(words: Sequence[str]) -> None:
    """Make an API key. The key goes to standard error, and its line for the file of keys to standard output."""
    if len(words) != 1 or words[0].startswith("-"):
        raise SettingsError("usage: cluster-serving-http hash-key NAME >> file of apiKeysFile")
    key, line = new_key(words[0])
    print(f"The key of {words[0]}, which is shown only now: {key}", file=sys.stderr)
    print(line)


def _say(urls: list[str]) -> None:
    print(f"Cluster Serving answers at {' and '.join(urls)}", flush=True)


def _fail(message: str, code: int) -> None:
    for line in message.splitlines():
        print(f"error: {line}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
