"""The commands that run Flink's Java programs: JobManager, TaskManager and `flink run`.

Flink's scripts start one to three further JVMs, which only read the configuration. That takes seconds, and after a
failure clients wait for them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_home import FlinkHome

_CLASSES = {
    "jobmanager": "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
    "taskmanager": "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
    "client": "org.apache.flink.client.cli.CliFrontend",
}

_TASKMANAGER_SIZES = (
    "framework.heap.size",
    "task.heap.size",
    "framework.off-heap.size",
    "task.off-heap.size",
    "network.max",
    "jvm-metaspace.size",
)
_JOBMANAGER_OVERHEAD_M = 128 + 192
"""Megabytes of a JobManager beside heap and metaspace: Flink's defaults for off-heap memory and for the JVM."""


def command(
    home: FlinkHome, role: str, log: Path, *arguments: str, classpath: Sequence[str] = (), scratch: Path | None = None
) -> list[str]:
    """Return the command of a `jobmanager`, a `taskmanager` or a `client`, whose messages go to the file `log`.

    The class path is Flink's, and after it the entries given. Temporary files go to the folder `scratch`, or else to
    that of the cluster.
    """
    conf = home.path / "conf"
    options = yaml.safe_load((conf / "config.yaml").read_text("utf8"))
    chosen = [shlex.split(options.get(f"env.java.opts.{name}") or "") for name in ("all", role)]
    logging = conf / f"log4j-{'cli' if role == 'client' else 'console'}.properties"
    return [
        str(home.java),
        *([f"@{home.java_options}"] if home.java_options.exists() else []),
        f"-Djava.io.tmpdir={scratch or home.path / 'tmp'}",
        # All messages are in the file; the console has only what other code prints.
        "-Dconsole.log.level=OFF",
        *memory(role, options),
        *(option for group in chosen for option in group),
        f"-Dlog.file={log}",
        f"-Dlog4j.configurationFile=file:{logging}",
        "-classpath",
        ":".join([*map(str, home.jars), *classpath]),
        _CLASSES[role],
        *([] if role == "client" else ["--configDir", str(conf)]),
        *arguments,
    ]


def memory(role: str, options: Mapping[str, Any]) -> list[str]:
    """Return the options of a JVM for its memory, as Flink's scripts compute them from the sizes in the configuration.

    Raises:
        LaunchError: If a size cannot be read.
    """

    def megabytes(key: str) -> int:
        match = re.fullmatch(r"(\d+)\s*(m|mb|g|gb)", str(options.get(key)).strip().lower())
        if match is None:
            raise LaunchError(f"flink.options: {key} is {options.get(key)!r}; expected a size such as 1024m or 2g")
        return int(match[1]) << (10 if match[2].startswith("g") else 0)

    if role == "client":
        return []
    if role == "jobmanager":
        metaspace = 256
        heap = megabytes("jobmanager.memory.process.size") - metaspace - _JOBMANAGER_OVERHEAD_M
        return [f"-Xmx{heap}m", f"-Xms{heap}m", f"-XX:MaxMetaspaceSize={metaspace}m"]
    of = {key: megabytes(f"taskmanager.memory.{key}") for key in _TASKMANAGER_SIZES}
    heap = of["framework.heap.size"] + of["task.heap.size"]
    direct = of["framework.off-heap.size"] + of["task.off-heap.size"] + of["network.max"]
    return [
        f"-Xmx{heap}m",
        f"-Xms{heap}m",
        f"-XX:MaxDirectMemorySize={direct}m",
        f"-XX:MaxMetaspaceSize={of['jvm-metaspace.size']}m",
    ]
