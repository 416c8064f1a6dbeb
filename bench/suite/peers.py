"""The peers: other servers, each in an environment of its own that is made when it is needed."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from cluster_serving.bench.load.payload import Record, raw_body
from cluster_serving.bench.load.target import Endpoint, Failed, Lost, references
from cluster_serving.bench.suite.grpc_target import over_grpc
from cluster_serving.bench.suite.stack import Unavailable, free_port, program, run
from cluster_serving.protocol.inputs import Array

SOURCES = Path("bench/peers").absolute()
_ANSWER_TIMEOUT = 45


@dataclass(frozen=True)
class Work:
    """The work of a server.

    Attributes:
        kind: `jpeg`, `tensor`, `vector` or `texts`.
        model: Folder of the model.
        records: The different requests.
        workers: Copies of the model.
        threads: Threads of each copy.
        single: Compile the model for single records, as Cluster Serving does where that is faster; for the bare loop.
        precision: `inferencePrecision` of Cluster Serving.
        rows: Records of each request.
        json: Images are sent as base64 in JSON to every server that can read them so; all but Triton can.
        grpc: Requests are sent through KServe's gRPC protocol.
        defaults: Servers and engines have the options that they have by themselves, and not those of the suite.
    """

    kind: str
    model: Path
    records: Sequence[Record]
    workers: int = 1
    threads: int = 1
    single: bool = False
    precision: str = ""
    rows: int = 1
    json: bool = False
    grpc: bool = False
    defaults: bool = False

    def environment(self, ports: Sequence[int] = (0,)) -> dict[str, str]:
        """Return the environment variables of `engine.py`."""
        fields = asdict(replace(self, records=())) | {"model": str(self.model.absolute()), "ports": ports}
        return {"BENCH_WORK": json.dumps(fields)}


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
        replica: Begin of the command line of a process that serves a copy of the model, and that the server starts
            again when it dies; empty if it is not measured.
        source: Folder in bench/peers; by default that of its name.
    """

    command: tuple[str, ...] = ("python", "server.py")
    path: str = "/predict"
    kinds: dict[str, str] = field(default_factory=lambda: {"jpeg": "raw", "tensor": "raw", "vector": "rows"})
    prepare: tuple[tuple[str, ...], ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    updates: dict[str, tuple[str, ...]] = field(default_factory=dict)
    replica: str = ""
    source: str = ""

    def encoding(self, work: Work) -> str | None:
        """Return the encoding of the requests of some work; None if the server is not set up for it."""
        kind = self.kinds.get("grpc" if work.grpc else work.kind)
        return "rows" if work.json and kind == "raw" else kind


_JSON = {"jpeg": "rows", "vector": "rows"}
_RAY = Peer(
    environment={"RAY_USAGE_STATS_ENABLED": "0"},
    updates={
        "user_config": ("python", "server.py", "{model}", "1"),
        "rolling update": ("python", "server.py", "{model}", "2"),
    },
    replica="ray::ServeReplica:",
    source="ray_serve",
)

PEERS = {
    "fastapi": Peer(),
    "mosec": Peer(("python", "server.py", "--port", "{port}", "--address", "127.0.0.1"), path="/inference"),
    "litserve": Peer(kinds=_JSON),
    "ray_data": Peer(kinds={"files": "files"}),
    "daft": Peer(kinds={"files": "files"}),
    "litserve_texts": Peer(path="/v1/embeddings", kinds={"texts": "embeddings"}),
    "bentoml": Peer(
        ("bentoml", "serve", "server:Bench", "--port", "{port}", "--host", "127.0.0.1"),
        kinds=_JSON,
        environment={"BENTOML_DO_NOT_TRACK": "true", "BENTOML_HOME": "{folder}"},
    ),
    "ray_serve": _RAY,
    # HAProxy, which Ray brings, sends requests to the replicas themselves.
    "ray_serve_haproxy": replace(
        _RAY, environment=_RAY.environment | {"RAY_SERVE_ENABLE_HA_PROXY": "1"}, updates={}, replica=""
    ),
    "mlserver": Peer(
        ("mlserver", "start", "{folder}"),
        path="/v2/models/bench/infer",
        kinds={"jpeg": "v2-json", "vector": "v2-json", "grpc": "grpc"},
        prepare=(("python", "server.py", "{folder}"),),
    ),
    "triton": Peer(
        path="/v2/models/bench/infer",
        kinds={"jpeg": "v2", "tensor": "v2", "vector": "v2", "grpc": "grpc"},
        # Triton embeds Python, and must load the library of this Python, not the system's.
        environment={"PYTRITON_HOME": "{folder}", "LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR") or ""},
    ),
}
"""The peers by name."""


@dataclass(frozen=True)
class Peers:
    """The peers' environments and logs.

    Attributes:
        environments: Folder of the environments, or the `bin` of one that has the packages of all peers.
        folder: Folder of logs, and of the files of the peers.
    """

    environments: Path
    folder: Path

    def install(self, name: str) -> Path:
        """Make the environment of a peer unless it exists, and return its `bin`.

        Raises:
            Unavailable: If its packages cannot be installed; the text is pip's message.
        """
        if (self.environments / "python").exists():
            return self.environments
        source = PEERS[name].source or name
        folder, requirements = (self.environments / source).absolute(), SOURCES / source / "requirements.txt"
        marker, wanted = folder / "installed", requirements.read_text("utf8")
        if not marker.exists() or marker.read_text("utf8") != wanted:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            run([folder / "bin/python", "-m", "pip", "install", "--quiet", "-r", requirements])
            marker.write_text(wanted, "utf8")
        return folder / "bin"

    @contextmanager
    def serving(self, name: str, work: Work) -> Iterator["Serving"]:
        """Run a peer for the time of a `with` block.

        Raises:
            Unavailable: If the peer cannot do this work or does not start; the text says why.
        """
        peer = PEERS[name]
        kind = peer.encoding(work)
        if kind is None:
            raise Unavailable(f"{name} is not set up for {work.kind}")
        binaries = self.install(name)
        ports = [free_port() for _ in range(3)]
        home = (self.folder / name).absolute()
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(SOURCES / (peer.source or name), home)
        shutil.copy(SOURCES / "engine.py", home)
        fill = {"port": str(ports[0]), "folder": str(home)}
        environment = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"} | work.environment(ports)
        environment |= {key: value.format(**fill) for key, value in peer.environment.items()}
        # The processes that a server starts find engine.py and server.py by this path.
        environment["PYTHONPATH"] = str(home)
        environment["PATH"] = f"{binaries}{os.pathsep}{environment['PATH']}"

        def filled(command: Sequence[str], **more: str) -> list[str]:
            executable, *arguments = (part.format(**fill, **more) for part in command)
            return [str(binaries / executable), *arguments]

        def update(way: str, model: Path) -> None:
            run(filled(peer.updates[way], model=str(model.absolute())), cwd=home, env=environment)

        for command in peer.prepare:
            run(filled(command), cwd=home, env=environment)
        log = home / "server.log"
        with program(filled(peer.command), ports[0], log, cwd=home, env=environment) as process:
            endpoint = Endpoint(
                kind, f"http://127.0.0.1:{ports[0]}{peer.path}", "", work.records, batched=work.rows > 1
            )
            if work.grpc:
                endpoint = over_grpc(endpoint, f"grpc://127.0.0.1:{ports[1]}/bench")
            _wait_for_answers(endpoint, process, log)
            yield Serving(endpoint, process.pid, update, peer.replica)

    def bare(self, work: Work, *arguments: str, script: Path = SOURCES / "bare.py", name: str = "") -> Any:
        """Run the work with nothing around it, in this environment or in that of a peer, and return what it prints.

        The arguments are those of bare.py, before the files with the requests.

        Raises:
            Unavailable: If it fails.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        files = [self.folder / f"{work.kind}-{index}" for index in range(len(work.records))]
        for file, record in zip(files, work.records, strict=True):
            file.write_bytes(raw_body(record))
        python = self.install(name) / "python" if name else Path(sys.executable)
        # A library of a peer would take the folder of another peer, such as triton, for a package.
        path = {"PYTHONPATH": str(SOURCES)} if script.parent == SOURCES else {}
        output = run([python, script, *arguments, *files], env=os.environ | work.environment() | path)
        return json.loads(output.splitlines()[-1])

    def right(self, work: Work) -> list[Array]:
        """Return the right answers: those of the bare model."""
        answers: list[Array] = self.bare(work, "answers", "1")
        return answers


class Serving(NamedTuple):
    """A peer that serves.

    Attributes:
        endpoint: Its address.
        pid: Its process.
        update: Gives it the model in a folder, in one of the ways of `Peer.updates`.
        replica: See `Peer.replica`.
    """

    endpoint: Endpoint
    pid: int
    update: Any
    replica: str

    def kill_replica(self) -> None:
        """Kill a process that serves a copy of the model."""
        processes = psutil.Process(self.pid).children(recursive=True)
        next(process for process in processes if "".join(process.cmdline()).startswith(self.replica)).kill()


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
