"""How often a reader of a command has to go back to a file.

Usage: python -m tests.support.programs.visits start -c config.yaml

The functions of our packages are noted at their first call. Where the next one lies in a file that was left before, the
reader returns to it. Commands and their options are those of `cluster-serving`.
"""

import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[3]


class Visits:
    """Files of the functions that a block calls for the first time, in their order.

    Args:
        packages: Folders that count.
    """

    def __init__(self, *packages):
        self._folders = tuple(f"{ROOT / 'cluster_serving' / name}/" for name in packages)
        self._seen = set()
        self.files = []

    def __enter__(self):
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        self.files = [file for file, _ in groupby(self.files)]

    @property
    def returns(self):
        """Number of returns to a file that was left."""
        return len(self.files) - len(set(self.files))

    def _note(self, frame, event, _):
        code = frame.f_code
        # Module bodies, and what they call, run when something is imported.
        if event != "call" or code in self._seen or code.co_name.startswith("<"):
            return
        self._seen.add(code)
        if code.co_filename.startswith(self._folders) and not _is_import(frame):
            self.files.append(code.co_filename.partition("/cluster_serving/")[2])


def _is_import(frame):
    while frame := frame.f_back:
        if frame.f_code.co_name == "<module>" and not frame.f_code.co_filename.startswith("<"):
            return frame.f_globals.get("__name__") != "__main__"
    return False


def main(words):
    from cluster_serving.launcher import entry_points

    sys.argv = ["cluster-serving", *words]
    with Visits("launcher", "settings") as visits:
        try:
            entry_points.umbrella()
        except SystemExit as end:
            code = end.code
        else:
            code = 0
    print("\n".join(visits.files))
    print(f"{len(set(visits.files))} files, {visits.returns} returns")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
