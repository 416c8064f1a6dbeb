"""The parts of the tests that CI leaves out while the files that they depend on stay as they are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fixtures.markers import PLACES
from tests.support.programs import parts
from tests.support.programs.parts import OPTIONAL, PARTS, PASSED
from tests.support.programs.release import git

ROOT = Path(__file__).parent.parent

PROGRAM = """
import sys
from tests.support.programs import parts

parts.PARTS = {"pages": parts.Part("docs", ["checks"], ["docs"])}
sys.exit(parts.main(sys.argv[1:]))
"""


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with a part `pages`: a test, and a page."""
    for folder in ("docs", "checks", "code", ".ci"):
        (tmp_path / folder).mkdir()
    (tmp_path / "docs" / "page.md").write_text("A page")
    (tmp_path / "code" / "module.py").touch()
    (tmp_path / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    (tmp_path / PASSED).write_text("{}")
    check(tmp_path, "pass")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts, "PARTS", {"pages": parts.Part("docs", ["checks"], ["docs"])})
    return tmp_path


def check(clone, body):
    """Write the tests of the part."""
    head = "import pytest\n\npytestmark = pytest.mark.docs\n"
    tests = f"def test_one():\n    pass\n\n\ndef test_two():\n    {body}\n"
    (clone / "checks" / "test_page.py").write_text(head + tests)


def commit(clone):
    git(clone, "add", "--all")
    git(clone, "-c", "user.name=A", "-c", "user.email=a@b.example", "commit", "--quiet", "--message", "All")


def run(clone, *words):
    """Run the part as make does; return the finished program."""
    program = [sys.executable, "-c", PROGRAM, "run", "pages", "-q", "-W", "ignore", *words]
    # The plugins of all tests take a second to load.
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(program, cwd=clone, env=environment, capture_output=True, text=True, check=False)


def test_a_part_that_has_passed_is_left_out_until_one_of_its_files_changes(clone):
    assert parts.reason("pages") == "it is not known to have passed"
    ran = run(clone)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert parts.reason("pages") == ""
    (clone / "code" / "module.py").write_text("changed = True\n")
    assert parts.reason("pages") == ""
    (clone / "docs" / "page.md").write_text("Another page")
    assert parts.reason("pages") == "changed since it passed: docs"


def test_what_passed_in_a_working_tree_is_known_when_it_is_committed(clone):
    (clone / "docs" / "new.md").write_text("A new page")
    git(clone, "add", "docs/new.md")
    (clone / "docs" / "page.md").write_text("Another page")
    assert run(clone).returncode == 0
    assert git(clone, "diff", "--name-only") == f"{PASSED}\ndocs/page.md"
    commit(clone)
    assert parts.reason("pages") == ""
    assert json.loads((clone / PASSED).read_text())["pages"]["docs"] == git(clone, "rev-parse", "HEAD:docs")


@pytest.mark.parametrize(
    ("body", "words", "message"),
    [
        ("assert False", (), "1 failed"),
        ("pytest.skip('no browser')", (), "pages: not written to .ci/passed.json: 1 tests were skipped"),
        (
            "open('docs/new.md', 'w').close()",
            (),
            "pages: not written to .ci/passed.json: files were changed meanwhile",
        ),
        ("pass", ("--", "checks/test_page.py::test_one"), "1 passed"),
    ],
)
def test_a_part_that_has_not_passed_as_a_whole_is_not_written(clone, body, words, message):
    check(clone, body)
    assert message in run(clone, *words).stdout
    assert (clone / PASSED).read_text() == "{}"


def test_other_servers_that_are_not_installed_do_not_count_as_skipped(clone):
    check(clone, f"pytest.skip('{OPTIONAL} is not set')")
    run(clone)
    assert parts.reason("pages") == ""


def test_a_part_that_is_not_there_is_refused(clone):
    with pytest.raises(SystemExit, match="pgs is not a part; the parts are pages"):
        parts.main(["run", "pgs"])


def test_each_test_with_a_marker_of_a_part_belongs_to_one():
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    marked = [file for file in files if any(file.is_relative_to(f"tests/{place}") for place in PLACES)]
    of_parts = [file for part in PARTS.values() for file in files if any(map(file.is_relative_to, part.tests))]
    # A real HDFS is for some tests of their file.
    assert sorted(of_parts) == sorted([*marked, Path("tests/job/remote/test_hdfs.py")])


def test_a_part_depends_on_files_that_there_are(monkeypatch):
    monkeypatch.chdir(ROOT)
    for part in PARTS.values():
        assert parts.hashes(part).keys() == {*part.tests, *part.files}
    known = json.loads((ROOT / PASSED).read_text("utf8"))
    assert known.keys() <= PARTS.keys()
