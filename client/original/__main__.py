"""Run a program that was written for the original's client on our client.

python -m cluster_serving.client.original program.py its arguments
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from cluster_serving.client import original

_USAGE = "usage: python -m cluster_serving.client.original program.py [argument …]"


def main() -> None:
    """Run the program that the command line names."""
    if len(sys.argv) < 2:
        raise SystemExit(_USAGE)
    if sys.argv[1] in ("-h", "--help"):
        print(_USAGE)
        return
    program = Path(sys.argv[1])
    if not program.is_file():
        raise SystemExit(f"there is no program {str(program)!r}; give the path of a Python file")
    # Set before `install`, since the program may have packages with the original's names.
    sys.path[0] = str(program.resolve().parent)
    original.install()
    sys.argv = sys.argv[1:]
    runpy.run_path(str(program), run_name="__main__")


main()
