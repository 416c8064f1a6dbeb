"""How often a reader of a command has to go back to a file.

Usage: python -m tests.support.programs.visits start -c config.yaml

The functions of our packages are noted at their first call. Where the next one lies in a file that was left before, the
reader returns to it. Commands and their options are those of `cluster-serving`.

Two kinds of functions do not count, as a reader need not follow them. One leads to no other file: its name and its
docstring stand for it (`store.note`, `state.write`). The other is a property, which is a value. For a start of commit
2385deb, in which a reader with a pencil counted 30 returns, all functions together give 77, and without these kinds 25.
"""

import sys
from inspect import getattr_static
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
        self._seen = {}
        self._leading = set()

    def __enter__(self):
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    @property
    def files(self):
        """The files, each as often as a reader comes to it."""
        names = (code.co_filename for code in self._seen if code in self._leading)
        return [name.partition("/cluster_serving/")[2] for name, _ in groupby(names)]

    @property
    def returns(self):
        """Number of returns to a file that was left."""
        return len(self.files) - len(set(self.files))

    def _note(self, frame, event, _):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self._folders):
            return
        # Module bodies, and what they call, run when something is imported.
        is_new = code not in self._seen and not code.co_name.startswith("<")
        if is_new and not _is_import(frame) and not _is_property(frame):
            self._seen[code] = None
        while frame := frame.f_back:
            if frame.f_code.co_filename != code.co_filename:
                self._leading.add(frame.f_code)


def _is_import(frame):
    while frame := frame.f_back:
        if frame.f_code.co_name == "<module>" and not frame.f_code.co_filename.startswith("<"):
            return frame.f_globals.get("__name__") != "__main__"
    return False


def _is_property(frame):
    first = next(iter(frame.f_locals.values()), None)
    return isinstance(getattr_static(type(first), frame.f_code.co_name, None), property)


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
