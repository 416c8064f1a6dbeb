"""What the kernel imports, followed to the end: `python -m tests.support.programs.closure [FOLDER ...]` prints it.

Roots are the files directly in the folders of the kernel. Imports inside functions count, those for type checkers alone
do not, and an import of a module is one of its packages, too. A list file, which names what is hung on, counts without
what it imports (`[tool.closure]` in pyproject.toml).
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
PACKAGE = "cluster_serving"
FOLDERS = ("protocol", "client", "connectors", "job", "frontend", "launcher")


class Size(NamedTuple):
    """Number of files, and of their lines."""

    files: int
    lines: int


def settings(root: Path = ROOT) -> dict:
    """Return `[tool.closure]`: `lists`, and the limits `all` and `first_four`, of files and lines."""
    return tomllib.loads((root / "pyproject.toml").read_text("utf8"))["tool"].get("closure", {})


def closure(folders: tuple[str, ...] = FOLDERS, root: Path = ROOT, lists: frozenset[str] = frozenset()) -> set[Path]:
    """Return the files that those directly in some folders import in the end, with these themselves."""
    pending = [path for folder in folders for path in sorted((root / folder).glob("*.py"))]
    found: set[Path] = set()
    while pending:
        path = pending.pop()
        if path in found:
            continue
        found.add(path)
        if path.relative_to(root).as_posix() not in lists:
            pending += _imported(path, root)
    return found


def size(paths: set[Path]) -> Size:
    """Return the size of files."""
    return Size(len(paths), sum(len(path.read_text("utf8").splitlines()) for path in paths))


def _imported(path: Path, root: Path) -> Iterator[Path]:
    for name in _names(ast.parse(path.read_text("utf8"))):
        parts = name.split(".")[1:]
        for end in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:end])
            yield from filter(Path.is_file, (place.with_suffix(".py"), place / "__init__.py"))


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names of this package that a module imports; the last part may be a name in a module."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for other in node.orelse:
            yield from _names(other)
        return
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        names = []
    yield from (name for name in names if name.split(".")[0] == PACKAGE)
    for child in ast.iter_child_nodes(node):
        yield from _names(child)


def main() -> None:
    """Print the closure of the kernel, of its first four folders, and of folders that are named with their files."""
    lists = frozenset(settings()["lists"])
    if folders := tuple(sys.argv[1:]):
        paths = closure(folders, lists=lists)
        print(*sorted(path.relative_to(ROOT).as_posix() for path in paths), size(paths), sep="\n")
    else:
        print("all", size(closure(lists=lists)))
        print("first four", size(closure(FOLDERS[:4], lists=lists)))


if __name__ == "__main__":
    main()
