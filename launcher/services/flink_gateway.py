"""A gateway to the Java of a JobManager, so that a submission needs no JVM of its own.

A program of PyFlink builds its job in a JVM, which it calls through a port. The JVM that `flink run` starts takes 2.4 s
of CPU. A JobManager can serve as well: it runs Flink's program `PythonDriver`, which opens a port and starts Python.
Here it starts a script in the place of Python. The script hands the port over, and waits until the command has ended.
So the program is a child of the command, with its environment, its output and its end.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_cause import cause
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.rest import Unanswered, request
from cluster_serving.settings.addresses import Address

_PROGRAM = "org.apache.flink.client.python.PythonDriver"

# The two files are pipes. Opened for reading and writing, a pipe waits for no other side; the second one ends with the
# command, also if that is killed.
_SCRIPT = """#!/bin/sh
cd "${0%/*}" || exit
exec 3<>open 4<open 3>&-
echo "$PYFLINK_GATEWAY_PORT" 1<>port
cat <&4
"""

_CLOSED_WITHIN = 10.0

_OF_THE_USER = ("rest.", "web.", "security.")
"""Beginnings of the options with which users decide themselves who reaches the JobManager."""


class Gateway(Thread):
    """A run of `PythonDriver` in a JobManager, which lasts for as long as its script waits.

    Attributes:
        port: Pipe from which the program reads the port of the gateway.
    """

    def __init__(self, url: str, script: str, python: str, port: int) -> None:
        # A daemon: a command ends also if the JobManager does not answer.
        super().__init__(daemon=True)
        self.port = port
        self._url = url
        # A text of a user has no place in the arguments: if `PythonDriver` cannot read them, it ends the JobManager.
        self._body = {
            "entryClass": _PROGRAM,
            "programArgsList": ["-pym", "gateway"],
            "flinkConfiguration": {"python.client.executable": script, "python.executable": python},
        }
        self._answer = ""

    def run(self) -> None:
        """Run it."""
        try:
            # The submission has a time limit of its own.
            self._answer = request("POST", self._url, body=self._body, timeout=None).text
        except Unanswered as error:
            self._answer = str(error)

    def check(self) -> None:
        """Check that the run lasts.

        Raises:
            LaunchError: If it has ended, and the gateway with it; the message has the cause.
        """
        if not self.is_alive():
            raise LaunchError(f"Flink does not take the job: {cause(_text(self._answer))}")


def settings(home: FlinkHome, address: Address, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with which a Flink of this machine takes submissions of these commands.

    Empty if the options that the user has `chosen` say who reaches the JobManager.
    """
    folder = _folder(home)
    shutil.rmtree(folder, ignore_errors=True)
    if any(option.startswith(_OF_THE_USER) for option in chosen):
        return {}
    folder.mkdir(parents=True, mode=0o700)
    return {
        "web.submit.enable": True,
        "web.upload.dir": str(folder),
        # By default pages of all origins may read what Flink answers. Flink's UI is on this one.
        "web.access-control-allow-origin": f"http://{address}",
    }


def exists(home: FlinkHome) -> bool:
    """Return True if the Flink of this machine was started with `settings`."""
    return _folder(home).is_dir()


@contextmanager
def opened(home: FlinkHome, address: Address) -> Iterator[Gateway]:
    """Provide a gateway, which may still have to open.

    A JobManager has one environment for all programs that it runs: `flink_cluster.submitting` lets one run at a time.
    """
    with tempfile.TemporaryDirectory(dir=home.path / "tmp", prefix="gateway-") as folder, _jar(home) as jar:
        script = Path(folder, "python")
        script.write_text(_SCRIPT, "utf8")
        script.chmod(0o700)
        port, end = (_pipe(Path(folder, name)) for name in ("port", "open"))
        gateway = Gateway(f"http://{address}/jars/{jar}/run", str(script), home.python, port)
        gateway.start()
        try:
            yield gateway
        finally:
            os.close(port)
            os.close(end)
            gateway.join(_CLOSED_WITHIN)


def _folder(home: FlinkHome) -> Path:
    return home.path / "upload"


def _pipe(path: Path) -> int:
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR)


@contextmanager
def _jar(home: FlinkHome) -> Iterator[str]:
    """Provide the name of a jar that a JobManager can run; it has no classes, as those of Flink are there."""
    # Where Flink stores jars that are uploaded. It makes the folder at its start.
    folder = _folder(home) / "flink-web-upload"
    folder.mkdir(exist_ok=True, mode=0o700)
    # Nobody can guess the name, and the file is there for one submission.
    with tempfile.NamedTemporaryFile(dir=folder, prefix=os.urandom(16).hex(), suffix=".jar") as file:
        with zipfile.ZipFile(file, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n\n")
        file.flush()
        yield Path(file.name).name


def _text(answer: str) -> str:
    """Return the stack trace in an answer of Flink; an answer without a stack trace as it is."""
    try:
        return str(json.loads(answer)["errors"][-1]).removeprefix("<Exception on server side:\n")
    except (ValueError, KeyError, TypeError, IndexError):
        return answer
