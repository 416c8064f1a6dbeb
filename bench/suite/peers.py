"""The peers: other servers, each in an environment of its own that is made when it is needed."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from cluster_serving.bench.load.payload import Record, raw_body
from cluster_serving.bench.load.target import Endpoint, Failed, Lost, references
from cluster_serving.bench.suite.stack import Unavailable, free_port, program
from cluster_serving.protocol.inputs import Array

SOURCES = Path("bench/peers")
_ANSWER_TIMEOUT = 45


@dataclass(frozen=True)
class Peer:
    """A server: its command and its requests.

    Attributes:
        command: Program in the environment's `bin/` with its arguments; `{port}` and `{folder}` (an empty folder) are
            filled in.
        path: Path of the request.
        kinds: Work → encoding of a request; see `target.Endpoint.kind`.
        prepare: Commands that run before, written like `command`.
        environment: Further environment variables.
        updates: Way → command that gives the running server the model in `{model}`, written like `command`.
        takes_rows: It computes the rows of one request together.
        replica: Begin of the command line of a process that serves a copy of the model, and that the server starts
            again when it dies; empty if it is not measured.
    """

    command: tuple[str, ...] = ("python", "server.py")
    path: str = "/predict"
    kinds: dict[str, str] = field(default_factory=lambda: {"jpeg": "raw", "tensor": "raw", "vector": "rows"})
    prepare: tuple[tuple[str, ...], ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    updates: dict[str, tuple[str, ...]] = field(default_factory=dict)
    takes_rows: bool = False
    replica: str = ""


PEERS = {
    "fastapi": Peer(takes_rows=True),
    "mosec": Peer(
        ("python", "server.py", "--port", "{port}", "--address", "127.0.0.1"), path="/inference", takes_rows=True
    ),
    "litserve": Peer(kinds={"jpeg": "rows", "vector": "rows"}),
    "bentoml": Peer(
        ("bentoml", "serve", "server:Bench", "--port", "{port}", "--host", "127.0.0.1"),
        kinds={"jpeg": "rows", "vector": "rows"},
        environment={"BENTOML_DO_NOT_TRACK": "true", "BENTOML_HOME": "{folder}"},
    ),
    "ray_serve": Peer(
        environment={"RAY_USAGE_STATS_ENABLED": "0"},
        updates={
            "user_config": ("python", "server.py", "{model}", "1"),
            "rolling update": ("python", "server.py", "{model}", "2"),
        },
        replica="ray::ServeReplica:",
    ),
    "mlserver": Peer(
        ("mlserver", "start", "{folder}"),
        path="/v2/models/bench/infer",
        kinds={"jpeg": "v2-json", "vector": "v2-json"},
        prepare=(("python", "server.py", "{folder}"),),
        takes_rows=True,
    ),
    "triton": Peer(
        path="/v2/models/bench/infer",
        kinds={"jpeg": "v2", "tensor": "v2", "vector": "v2"},
        # Triton embeds Python, and must load the library of this Python, not the system's.
        environment={"PYTRITON_HOME": "{folder}", "LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR") or ""},
        takes_rows=True,
    ),
    "torchserve": Peer(
        (
            *("torchserve", "--foreground", "--ncs", "--disable-token-auth", "--model-store", "{folder}"),
            *("--ts-config", "{folder}/config.properties"),
        ),
        path="/predictions/bench",
        prepare=(
            (
                *("torch-model-archiver", "--model-name", "bench", "--version", "1", "--handler", "server.py"),
                *("--extra-files", "engine.py", "--export-path", "{folder}"),
            ),
            ("python", "server.py", "{folder}", "{port}"),
        ),
    ),
}
"""The peers by name."""


@dataclass(frozen=True)
class Work:
    """The work of a server.

    Attributes:
        kind: `jpeg`, `tensor` or `vector`.
        model: Folder of the IR.
        records: The different requests.
        workers: Copies of the model.
        threads: Threads of each copy.
        single: Compile the model for single records, as Cluster Serving does where that is faster; for the bare loop.
        precision: `inferencePrecision` of Cluster Serving.
        rows: Records of each request.
        json: Images are sent as base64 in JSON to every server that can read them so; all but Triton can.
    """

    kind: str
    model: Path
    records: Sequence[Record]
    workers: int
    threads: int
    single: bool = False
    precision: str = ""
    rows: int = 1
    json: bool = False

    def environment(self, port: int = 0) -> dict[str, str]:
        """Return the environment variables that `engine.py` reads."""
        return {
            "BENCH_KIND": self.kind,
            "BENCH_MODEL": str(self.model.absolute()),
            "BENCH_WORKERS": str(self.workers),
            "BENCH_THREADS": str(self.threads),
            "BENCH_SINGLE": str(int(self.single)),
            "BENCH_PRECISION": self.precision,
            "BENCH_ROWS": str(self.rows),
            "BENCH_JSON": str(int(self.json)),
            "BENCH_PORT": str(port),
            "BENCH_PORTS": ",".join(str(free_port()) for _ in range(4)),
            "PYTHONPATH": str(SOURCES.absolute()),
        }


def install(name: str, environments: Path, report: Callable[[str], None]) -> Path:
    """Make the environment of a peer unless it exists, and return its `bin`.

    Raises:
        Unavailable: If its packages cannot be installed; the text is pip's message.
    """
    folder, wanted = (environments / name).absolute(), (SOURCES / name / "requirements.txt").read_text("utf8")
    marker = folder / "installed"
    if not marker.exists() or marker.read_text("utf8") != wanted:
        report(f"Installing {name} in {folder}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(
            [*pip, "-r", str(SOURCES / name / "requirements.txt")], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Unavailable(f"pip: {done.stderr.strip()[-300:]}")
        marker.write_text(wanted, "utf8")
    return folder / "bin"


class Serving(NamedTuple):
    """A peer that serves.

    Attributes:
        endpoint: Its address.
        pid: Its process.
        update: Gives it the model in a folder, in one of the ways of `Peer.updates`; see `serving` for errors.
        replica: See `Peer.replica`.
    """

    endpoint: Endpoint
    pid: int
    update: Callable[[str, Path], None]
    replica: str

    def kill_replica(self) -> None:
        """Kill a process that serves a copy of the model."""
        processes = psutil.Process(self.pid).children(recursive=True)
        next(process for process in processes if "".join(process.cmdline()).startswith(self.replica)).kill()


@contextmanager
def serving(
    name: str, work: Work, environments: Path, folder: Path, report: Callable[[str], None]
) -> Iterator[Serving]:
    """Run a peer for the time of a `with` block.

    `environments` is the folder of the environments, or the `bin` of one that has the peer's packages. Logs and the
    peer's files go to `folder`.

    Raises:
        Unavailable: If the peer cannot do this work or does not start; the text says why.
    """
    peer = PEERS[name]
    if work.kind not in peer.kinds or (work.rows > 1 and not peer.takes_rows):
        raise Unavailable(f"{name} is not set up for {work.kind}")
    binaries = environments if (environments / "python").exists() else install(name, environments, report)
    port = free_port()
    home = (folder / name).absolute()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    fill = {"port": str(port), "folder": str(home)}
    environment = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"} | work.environment(port)
    environment["PYTHONPATH"] += os.pathsep + str((SOURCES / name).absolute())
    environment["PATH"] = f"{binaries}{os.pathsep}{environment['PATH']}"
    environment |= {key: value.format(**fill) for key, value in peer.environment.items()}
    shutil.copy(SOURCES / "engine.py", home)
    shutil.copy(SOURCES / name / "server.py", home)
    log = folder / f"{name}.log"
    log.write_bytes(b"")

    def run(command: Sequence[str], **more: str) -> None:
        filled = _filled(binaries, command, fill | more)
        with log.open("ab") as output:
            done = subprocess.run(filled, cwd=home, env=environment, stdout=output, stderr=output, check=False)
        if done.returncode:
            raise Unavailable(f"{command[0]} ended with {done.returncode}; see {log}")

    def update(way: str, model: Path) -> None:
        run(peer.updates[way], model=str(model.absolute()))

    for command in peer.prepare:
        run(command)
    with program(_filled(binaries, peer.command, fill), port, log, cwd=home, env=environment) as process:
        kind = peer.kinds[work.kind]
        endpoint = Endpoint(
            "rows" if work.json and kind == "raw" else kind,
            f"http://127.0.0.1:{port}{peer.path}",
            "",
            work.records,
            batched=work.rows > 1,
        )
        _wait_for_answers(endpoint, process, log)
        yield Serving(endpoint, process.pid, update, peer.replica)


def _filled(binaries: Path, command: Sequence[str], fill: dict[str, str]) -> list[str]:
    executable, *arguments = (part.format(**fill) for part in command)
    return [str(binaries / executable), *arguments]


def _wait_for_answers(endpoint: Endpoint, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline, problem = time.monotonic() + _ANSWER_TIMEOUT, "no answer"
    while time.monotonic() < deadline and process.poll() is None:
        try:
            asyncio.run(references(endpoint))
            return
        except (Failed, Lost, OSError, ValueError, KeyError) as error:
            problem = f"{type(error).__name__}: {error}"
        time.sleep(0.3)
    raise Unavailable(f"the server does not answer ({problem}); see {log}")


def bare_answers(work: Work, folder: Path) -> list[Array]:
    """Return the right answers: those of the bare model."""
    return [np.asarray(answer) for answer in _bare(work, folder, "answers", 1)]


def bare_rate(work: Work, folder: Path, seconds: float, batch: int) -> dict[str, Any]:
    """Measure the bare loop: `rate` in answers per second, and `cpu` seconds per 1,000 answers."""
    return dict(_bare(work, folder, str(seconds), batch))


def _bare(work: Work, folder: Path, seconds: str, batch: int) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for index, record in enumerate(work.records):
        files.append(folder / f"{work.kind}-{index}")
        files[-1].write_bytes(raw_body(record))
    command = [sys.executable, str(SOURCES / "bare.py"), seconds, str(batch), *map(str, files)]
    done = subprocess.run(command, env=os.environ | work.environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"the bare loop failed: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout.splitlines()[-1])
