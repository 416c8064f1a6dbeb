"""A Flink installation made of links to the installed one, with the configuration of one cluster.

Nothing is written into site-packages or into the user's FLINK_HOME, and several clusters run beside each other.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import java

VERSION = "2.3"


@dataclass(frozen=True, slots=True)
class FlinkHome:
    """The folder of one cluster.

    Attributes:
        path: Where it is; free of spaces, which Flink's scripts cannot take.
    """

    path: Path

    @property
    def logs(self) -> Path:
        """Folder of the log files."""
        return self.path / "log"

    @property
    def work(self) -> Path:
        """An empty folder, to run things in: what lies in the current one would shadow Python's packages."""
        return self.path / "work"

    @property
    def python(self) -> str:
        """This interpreter, by a path free of spaces."""
        return self._without_spaces(sys.executable)

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Write links and configuration.

        Args:
            settings: Flink options that differ from the packaged `config.yaml`; None unsets one.

        Raises:
            LaunchError: Flink is not installed.
        """
        source = _installed()
        for name in ("bin", "lib", "opt", "plugins", "conf", "tmp"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in ("conf", "log", "tmp", "work"):
            (self.path / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        # Flink's scripts find their home through their own real path, so they are copied.
        shutil.copytree(source / "bin", self.path / "bin")
        # Real folders: Flink does not look into a linked opt/.
        for name in ("lib", "opt", "plugins"):
            _link_files(source / name, self.path / name)
        # In lib/ it is loaded once per process. Loaded once per job, its native library fails in the second one.
        for jar in (source / "opt").glob("flink-python-*.jar"):
            _link(self.path / "lib" / jar.name, jar)
        _link(self.path / "python", Path(sys.prefix))
        _link(self.path / "java", java.find_home())
        packaged = resources.files("cluster_serving.flink_conf")
        for file in packaged.iterdir():
            if file.name.endswith(".properties"):
                (self.path / "conf" / file.name).write_bytes(file.read_bytes())
        options = yaml.safe_load((packaged / "config.yaml").read_text("utf8"))
        options |= {"python.executable": self.python, "python.client.executable": self.python} | dict(settings)
        options = {key: value for key, value in options.items() if value is not None}
        (self.path / "conf" / "config.yaml").write_text(yaml.safe_dump(options, width=10_000), "utf8")

    def environment(self) -> dict[str, str]:
        """Environment for Flink's scripts, and through them for the Python in the TaskManager."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("FLINK_", "_FLINK_"))}
        folders = {
            f"FLINK_{name.upper()}_DIR": str(self.path / name)
            for name in ("lib", "opt", "plugins", "conf", "log", "pid")
        }
        return (
            inherited
            | folders
            | {
                "FLINK_HOME": str(self.path),
                "JAVA_HOME": str(self.path / "java"),
                "JVM_ARGS": f"-Djava.io.tmpdir={self.path / 'tmp'}",
                # The interpreter that Flink embeds reads no .pth files and knows no virtual environment.
                "PYTHONPATH": os.pathsep.join(map(self._without_spaces, python_path())),
            }
        )

    def _without_spaces(self, path: str) -> str:
        inside = Path(path).is_relative_to(sys.prefix)
        return str(self.path / "python" / Path(path).relative_to(sys.prefix)) if inside else path


def python_path() -> list[str]:
    """Folders of `sys.path` that hold packages: not those of Python itself, nor that of the running script."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # Python puts the folder of the script, or the current one, at the front; their files would shadow packages.
    script = getattr(sys.modules["__main__"], "__file__", None)
    in_front = {str(Path.cwd()), str(Path(script or "").absolute().parent)} - set(given)
    own = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    own |= {str(Path(folder, "lib-dynload")) for folder in own}
    entries = dict.fromkeys(str(Path(entry).absolute()) for entry in sys.path if entry and Path(entry).is_dir())
    return [entry for entry in entries if entry not in own | in_front]


def _installed() -> Path:
    chosen = os.environ.get("FLINK_HOME")
    if chosen and list(Path(chosen, "lib").glob(f"flink-dist-{VERSION}.*.jar")):
        return Path(chosen).absolute()
    spec = importlib.util.find_spec("pyflink")
    if spec and spec.submodule_search_locations:
        found = Path(spec.submodule_search_locations[0])
        if (found / "lib").is_dir():
            return found
    raise LaunchError("Flink is not installed; run pip install 'cluster-serving[server]'")


def _link_files(source: Path, target: Path) -> None:
    for file in source.rglob("*"):
        if file.is_file():
            _link(target / file.relative_to(source), file)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
