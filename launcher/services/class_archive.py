"""An archive of Flink's classes, which a JVM maps instead of reading and verifying them (class data sharing of Java).

It saves half of the CPU time of the start of a JVM, and the memory is shared by all JVMs of this machine. The first
JVMs of an installation list their classes. When a job has started well, a process in the background makes the archive
of these lists. All clusters of the installation use it from then on, also where a supervisor starts a JVM again.

```
<state>/classes/KEY.jsa           an archive
<state>/classes/KEY.lists/        what one is made of, while it is made: a shutdown removes files of its cluster alone
<state>/classes/lock              held by the process that makes one
<state>/flink-PORT/java.options   options of each JVM of a cluster: the archive, or where to list its classes
<state>/flink-PORT/classes/       lists of classes and logs of what was loaded, one of each for a JVM
```
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from cluster_serving.launcher.services import rpc_classes, spaceless, state
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.supervisor import python_command
from cluster_serving.protocol.host.background import give_way

KEPT = 3
"""Most archives that are kept, each of about 100 MB: one for each installation that was used last."""

_CONTENT = b"with rpc classes"
"""In the name of each archive, since another version of this module may have made one with less."""

_TIMEOUT = 600.0


def use(home: FlinkHome) -> None:
    """Write the options of the JVMs of a cluster: the archive, or, if there is none, where to list their classes."""
    archive = _archive(home)
    if archive.exists():
        archive.touch()
        # A JVM that cannot use the archive does without, and says nothing. At another address, the default of newer
        # releases of Java, each JVM would have a copy of its own.
        placed = ["-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"]
        options = ["-Xshare:auto", "-Xlog:cds=off", *placed, f"-XX:SharedArchiveFile={archive}"]
    else:
        _lists(home).mkdir(parents=True, exist_ok=True)
        log = rpc_classes.OPTION.format(f'"{_lists(home) / "%p.log"}"')
        options = [f"-XX:DumpLoadedClassList={_lists(home) / '%p.list'}", log]
    state.write(home.java_options, "\n".join(map(_quoted, options)))


def make_soon(home: FlinkHome) -> None:
    """Let a process in the background make the archive from the lists of a cluster, if it has written lists."""
    if not any(_lists(home).glob("*.list")):
        return
    with (home.logs / "classes.log").open("ab") as log:
        subprocess.Popen(  # noqa: S603 - this module, no shell
            python_command("cluster_serving.launcher.services.class_archive", str(home.path)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.work,
            env={**home.environment(), state.HOME: str(state.root())},
            start_new_session=True,
        )


def make(home: FlinkHome) -> None:
    """Make the archive, unless there is one or another process makes one, and let the cluster use it."""
    folder = state.root() / "classes"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            return
        if not _archive(home).exists():
            _dump(home)
        for old in sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            old.unlink()
    # The cluster may have been shut down meanwhile.
    if home.java_options.exists():
        use(home)


def _dump(home: FlinkHome) -> None:
    archive = _archive(home)
    lists, unfinished = spaceless.without_spaces(archive.with_suffix(".lists")), archive.with_suffix(".part")
    # What a process has left that was killed.
    shutil.rmtree(lists, ignore_errors=True)
    _lists(home).rename(lists)
    _lists(home).mkdir()
    try:
        classes = lists / "classes"
        jar = rpc_classes.unpack(home.jars, lists)
        lines = _classes(lists.glob("*.list"))
        if jar is not None:
            lines = rpc_classes.extended(lines, map(_read, lists.glob("*.log")), jar)
        classes.write_text("\n".join(lines), "utf8")
        subprocess.run(  # noqa: S603 - the Java of the cluster, no shell
            [
                home.java,
                "-Xshare:dump",
                # Its warnings would be lines of `cluster-serving-cli logs --errors`.
                "-Xlog:disable",
                # Other collectors write no archive of objects, but can read one.
                "-XX:+UseG1GC",
                "-Xmx512m",
                "-XX:TieredStopAtLevel=1",
                f"-XX:SharedClassListFile={classes}",
                f"-XX:SharedArchiveFile={unfinished}",
                "-classpath",
                ":".join(map(str, home.jars)),
            ],
            check=True,
            timeout=_TIMEOUT,
            # A shutdown removes the folder in which this process was started.
            cwd=lists,
        )
        unfinished.replace(archive)
    finally:
        unfinished.unlink(missing_ok=True)
        shutil.rmtree(lists)


def _classes(lists: Iterable[Path]) -> list[str]:
    """Return the lines of several lists, each once, without numbers; classes that have a source are left out."""
    lines = [line for file in lists for line in _read(file).splitlines()]
    found = [line for line in lines if not line.startswith("#") and " source: " not in line]
    return list(dict.fromkeys(line if line.startswith("@") else line.split(" id: ")[0] for line in found))


def _read(file: Path) -> str:
    return file.read_text("utf8", "replace")


def _lists(home: FlinkHome) -> Path:
    return home.path / "classes"


def _archive(home: FlinkHome) -> Path:
    """Return the archive for this Java and these jars; a JVM refuses one that was made with others."""
    digest = hashlib.sha256(_CONTENT)
    java = home.java.resolve()
    for file in (java, *java.parents[1].glob("lib/server/libjvm.so"), *home.jars):
        status = file.stat()
        digest.update(f"{file}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return state.root() / "classes" / f"{digest.hexdigest()[:16]}.jsa"


def _quoted(option: str) -> str:
    """Return an option as a file of arguments of Java has it."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


if __name__ == "__main__":
    give_way(19)
    with suppress(OSError, subprocess.SubprocessError):
        make(FlinkHome(Path(sys.argv[1])))
