"""All texts that a command, the client or the front end can print, as the source has them.

    python -m tests.support.programs.messages > messages.txt

prints one line for each: file, line, and the text, with the expressions of f-strings in braces. A person reads them
before a release: what happened, where (file, key, job), and the next command or edit.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PACKAGES = ("protocol", "client", "settings", "connectors", "job", "embed", "launcher", "frontend", "bench/load")

_SHOWING = {
    *("say", "warn", "_say", "_warn", "_fail", "print", "echo", "confirm", "exit", "print_exc"),
    *("debug", "info", "warning", "error", "exception", "critical", "log", "BadParameter"),
}
"""Functions and methods whose texts people see."""


class Message(NamedTuple):
    """A text, and where the source has it."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def messages() -> list[Message]:
    """Return the messages of all packages."""
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [message for path in files if not path.name.endswith("_pb2.py") for message in _of(path)]


def _of(path: Path) -> Iterator[Message]:
    tree = ast.parse(path.read_text("utf8"))
    for node in ast.walk(tree):
        for value in _shown(node):
            if text := _text(value):
                yield Message(str(path.relative_to(ROOT)), value.lineno, text)


def _shown(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the texts that an expression shows or raises."""
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        is_error = name[:1].isupper() and name not in ("Path", "Option", "Argument", "Literal", "Field")
        if name in _SHOWING or is_error:
            yield from node.args[:1]


def _text(node: ast.expr) -> str:
    """Return what is fixed in a text, with its expressions in braces; nothing for a text that is only an expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) and " " in node.value else ""
    if isinstance(node, ast.JoinedStr):
        parts = [
            f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else str(part.value)  # type: ignore[attr-defined]
            for part in node.values
        ]
        return "".join(parts) if any(" " in str(getattr(part, "value", "")) for part in node.values) else ""
    if isinstance(node, ast.IfExp):
        return " | ".join(filter(None, (_text(node.body), _text(node.orelse))))
    return ""


def main() -> None:
    """Print all messages."""
    for message in messages():
        print(str(message).replace("\n", "\\n"))


if __name__ == "__main__":
    main()
