"""The commands that run Flink's Java programs: JobManager, TaskManager and `flink run`.

Flink's scripts start one to three further JVMs, which only read the configuration. That takes seconds, and after a
failure clients wait for them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import yaml

from cluster_serving.launcher.services.flink_home import FlinkHome

_CLASSES = {
    "jobmanager": "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
    "taskmanager": "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
    "client": "org.apache.flink.client.cli.CliFrontend",
}

MEMORY = {
    "jobmanager": ("-Xmx448m", "-Xms448m", "-XX:MaxMetaspaceSize=256m"),
    "taskmanager": ("-Xmx1152m", "-Xms1152m", "-XX:MaxDirectMemorySize=256m", "-XX:MaxMetaspaceSize=256m"),
    "client": (),
}
"""What Flink's scripts compute from the sizes in `flink-conf/config.yaml`."""


def command(home: FlinkHome, role: str, log: Path, *arguments: str, classpath: Sequence[str] = ()) -> list[str]:
    """Return the command of a `jobmanager`, a `taskmanager` or a `client`, whose messages go to the file `log`.

    The class path is Flink's, and after it the entries given.
    """
    conf = home.path / "conf"
    options = yaml.safe_load((conf / "config.yaml").read_text("utf8"))
    chosen = [shlex.split(options.get(f"env.java.opts.{name}") or "") for name in ("all", role)]
    jars = sorted((home.path / "lib").rglob("*.jar"), key=lambda jar: ("flink-dist" in jar.name, jar))
    logging = conf / f"log4j-{'cli' if role == 'client' else 'console'}.properties"
    return [
        str(home.path / "java" / "bin" / "java"),
        f"-Djava.io.tmpdir={home.path / 'tmp'}",
        # All messages are in the file; the console has only what other code prints.
        "-Dconsole.log.level=OFF",
        *MEMORY[role],
        *(option for group in chosen for option in group),
        f"-Dlog.file={log}",
        f"-Dlog4j.configurationFile=file:{logging}",
        "-classpath",
        ":".join([*map(str, jars), *classpath]),
        _CLASSES[role],
        *([] if role == "client" else ["--configDir", str(conf)]),
        *arguments,
    ]
