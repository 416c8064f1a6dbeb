"""Parts of the tests that CI runs only after a change to files that they depend on: documents, clients, each cluster.

    python -m tests.support.programs.parts run PART... [OPTIONS OF PYTEST] [-- TESTS]
    python -m tests.support.programs.parts reason PART

`run` writes the git hashes of those files to `.ci/passed.json` when all tests of a part have passed, and no test was
skipped. Nothing else writes that file. Hashes are those of the working tree: they stay the same when it is committed.
With TESTS it runs these alone, and writes nothing. `reason` prints why a part is to be run; it prints nothing if the
part has passed with the files as they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path()
PASSED = ".ci/passed.json"

OPTIONAL = "CLUSTER_SERVING_TEST_PEERS"
"""In the reason of a skip that does not count: other servers, which are installed by hand."""


class Part(NamedTuple):
    """A part of the tests.

    Attributes:
        marker: Marker of its tests (`tests/support/fixtures/markers.py`).
        tests: Files and folders of its tests.
        files: Further files and folders that it depends on.
    """

    marker: str
    tests: Sequence[str]
    files: Sequence[str]


# A cluster differs from the Flink of `make test` in where a job runs and in what is brought there.
_SHIPPED = ("launcher/shipping", "launcher/targets", "tests/support/worlds")

PARTS = {
    # Pages show the commands, the clients and the front end; `make test` has what lies below.
    "docs": Part(
        "docs",
        ("tests/docs", "tests/examples", "tests/e2e/test_coming_from.py"),
        (
            *("docs", "examples", "README.md", "mkdocs.yml", "Makefile", "config.yaml"),
            *("client", "embed", "frontend", "job", "launcher"),
            *("tests/conftest.py", "tests/e2e/conftest.py"),
            *("tests/support/fixtures", "tests/support/payloads", "tests/support/worlds"),
        ),
    ),
    "clients": Part(
        "clients",
        ("tests/frontend/clients",),
        (
            *("frontend", "protocol", "tests/frontend/conftest.py", "tests/support/programs/clients"),
            *("tests/support/worlds/clients.py", "tests/support/fixtures/generating.py"),
        ),
    ),
    "machines": Part(
        "clusters",
        ("tests/clusters/test_machines.py",),
        (*_SHIPPED, "connectors", "job/main.py", "job/submission.py", "job/topology.py"),
    ),
    "yarn": Part("clusters", ("tests/clusters/test_yarn.py",), (*_SHIPPED, "job/main.py", "job/remote")),
    "hdfs": Part("clusters", ("tests/job/remote/test_hdfs.py",), ("job/remote",)),
    "kafka": Part(
        "clusters",
        ("tests/clusters/test_kafka.py",),
        ("embed", "examples/flink", "tests/clusters/programs", "tests/support/flink_programs.py"),
    ),
    "images": Part(
        "clusters",
        ("tests/clusters/test_images.py", "tests/clusters/test_helm.py", "tests/clusters/test_kubernetes.py"),
        (
            *_SHIPPED,
            *("Dockerfile", ".dockerignore", "docker-compose.yml", "image", "charts", "flink-conf", "monitoring"),
            *("hatch_build.py", "pyproject.toml", "launcher/container", "job/main.py"),
        ),
    ),
}


def hashes(part: Part, root: Path = ROOT) -> dict[str, str]:
    """Return the git hash of each file and folder that a part depends on, as they are in the working tree."""
    with tempfile.TemporaryDirectory() as folder:
        # An index of its own: what the user has staged stays as it is.
        environment = os.environ | {"GIT_INDEX_FILE": f"{folder}/index"}

        def git(*words: str) -> str:
            done = subprocess.run(
                ["git", *words], cwd=root, env=environment, check=True, capture_output=True, text=True
            )
            return done.stdout.strip()

        git("read-tree", "HEAD")
        git("add", "--all")
        rows = git("ls-tree", git("write-tree"), *part.tests, *part.files).splitlines()
    return {path: words.split()[2] for words, _, path in (row.partition("\t") for row in rows)}


def reason(name: str, root: Path = ROOT) -> str:
    """Return why a part is to be run, or nothing if it has passed with the files as they are."""
    if (passed := _read(root).get(name)) is None:
        return "it is not known to have passed"
    now = hashes(PARTS[name], root)
    changed = sorted(path for path in now.keys() | passed.keys() if now.get(path) != passed.get(path))
    return f"changed since it passed: {', '.join(changed)}" if changed else ""


def record(passed: dict[str, dict[str, str]], root: Path = ROOT) -> None:
    """Write the hashes of parts that have passed."""
    text = json.dumps(_read(root) | passed, indent=2, sort_keys=True)
    (root / PASSED).write_text(f"{text}\n", "utf8")


def _read(root: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((root / PASSED).read_text("utf8"))
    return found


class Outcome:
    """A plugin of pytest that keeps which tests ran, and which of them were skipped.

    Attributes:
        ran: Ids of the tests.
        skipped: Ids of those that were skipped.
    """

    def __init__(self) -> None:
        self.ran: set[str] = set()
        self.skipped: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test."""
        self.ran.add(report.nodeid)
        if report.skipped and not hasattr(report, "wasxfail") and OPTIONAL not in str(report.longrepr):
            self.skipped.add(report.nodeid)

    def problem(self, part: Part) -> str:
        """Return why a part has not passed as a whole, or nothing."""
        if skipped := [test for test in self.skipped if test.startswith(tuple(part.tests))]:
            return f"{len(skipped)} tests were skipped"
        missing = [path for path in part.tests if not any(test.startswith(path) for test in self.ran)]
        return f"no test of {', '.join(missing)} ran" if missing else ""


def run(names: Sequence[str], options: Iterable[str], narrowed: Sequence[str]) -> int:
    """Run parts, or the tests to which they are narrowed; record those that have passed. Return pytest's exit code."""
    parts = {name: PARTS[name] for name in names}
    before = {name: hashes(part) for name, part in parts.items()}
    markers = " or ".join(sorted({part.marker for part in parts.values()}))
    tests = narrowed or [path for part in parts.values() for path in part.tests]
    outcome = Outcome()
    if (code := pytest.main([*options, "-m", markers, *tests], [outcome])) or narrowed:
        return code
    for name, part in parts.items():
        problem = outcome.problem(part) or ("" if hashes(part) == before[name] else "files were changed meanwhile")
        if problem:
            print(f"{name}: not written to {PASSED}: {problem}")
        else:
            record({name: before[name]})
            print(f"{name}: passed; {PASSED} has it, to be committed with your change")
    return 0


def main(words: Sequence[str]) -> int:
    """Run parts, or print why one is to be run."""
    command, *rest = words
    end = rest.index("--") if "--" in rest else len(rest)
    names = [word for word in rest[:end] if word in PARTS]
    options = rest[len(names) : end]
    if not names or (options and not options[0].startswith("-")):
        sys.exit(f"error: {' '.join(options)} is not a part; the parts are {', '.join(PARTS)}")
    if command == "run":
        return run(names, options, rest[end + 1 :])
    print(reason(names[0]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
