"""Print the ids of the tests that failed in the last run, a line each; fail if there are none."""

import json
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")


def failed(text: str) -> list[str]:
    """Return the ids of tests that can be run, from what pytest keeps of failures.

    pytest-xdist writes the group of a test behind its id.
    """
    return [one if one.endswith("]") or "@" not in one else one.rpartition("@")[0] for one in json.loads(text)]


if __name__ == "__main__":
    tests = failed(FAILED.read_text("utf8")) if FAILED.exists() else []
    print(*tests, sep="\n")
    sys.exit(not tests)
