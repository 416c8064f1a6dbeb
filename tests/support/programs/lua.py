"""Check of the Lua scripts, as `make check` runs it: syntax, and a head that tells keys and arguments."""

import sys
from pathlib import Path

from lupa import lua51

FOLDER = Path("protocol/lua")


def problems(path: Path) -> list[str]:
    """Return what is wrong with a script."""
    text = path.read_text("utf8")
    found = []
    head = text.partition("\n\n")[0]
    if not all(line.startswith("-- ") for line in head.splitlines()):
        found.append("the file does not begin with comments and an empty line")
    elif path.name != "after_pieces.lua" and "KEYS" not in head:
        found.append("the head does not tell the KEYS")
    try:
        lua51.LuaRuntime().compile(text)
    except lua51.LuaSyntaxError as error:
        found.append(str(error))
    return found


def main() -> int:
    """Print the problems of all scripts; return 1 if there are some."""
    found = [f"{path}: {problem}" for path in sorted(FOLDER.glob("*.lua")) for problem in problems(path)]
    print("\n".join(found) or f"{len(list(FOLDER.glob('*.lua')))} Lua scripts are well-formed.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
