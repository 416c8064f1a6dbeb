"""A release: what has to be true before it, and its tag (`make release`).

    python -m tests.support.programs.release pages    before the commit: pages install from an index, not from a clone
    python -m tests.support.programs.release check    before anything is built
    python -m tests.support.programs.release tag      when the wheel was tested

Nothing leaves this machine: `tag` prints the commands that publish the release.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.programs import parts

ROOT = Path()
# What a new user types before the first release → afterwards.
_INSTALLATION = {
    r"git clone <this repository> cluster-serving && cd cluster-serving\nmake quickstart\n": (
        "pipx install 'cluster-serving[quickstart]'\ncluster-serving quickstart\n"
    ),
    r"\. \.venv/bin/activate\nmkdir \.\./serving && cd \.\./serving\n": "",
    r"git clone <this repository> cluster-serving\n": "",
    r"'\./cluster-serving\[": "'cluster-serving[",
    r" \.quickstart/": " quickstart/",
    r"^Before the first release, .* installs it into `\.venv`\.\n": (
        "`uvx --from 'cluster-serving[quickstart]' cluster-serving quickstart` does the same.\n"
    ),
    r"^Before the first release, .*\n": "",
}
_IMAGE = r"cluster-serving-(?:flink|client):(\d+\.\d[\w.]*)"
_PUBLISH = """
Tagged {tag}; nothing has left this machine. These commands publish it:

    git push origin {tag}
    .venv/bin/twine upload --skip-existing dist/*
"""


def version(root: Path = ROOT) -> str:
    """Return the version, which pyproject.toml has."""
    (found,) = re.findall(r'^version = "(.+)"$', (root / "pyproject.toml").read_text("utf8"), re.MULTILINE)
    return str(found)


def copies(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Yield each file that repeats the version, with what it says; files of Helm cannot refer to pyproject.toml."""
    patterns = {root / "charts/cluster-serving/Chart.yaml": r"^(?:version|appVersion): (\S+)$"}
    for path in [*(root / "charts").rglob("*.yaml"), *(root / "docs").rglob("*.md")]:
        for found in re.findall(patterns.get(path, _IMAGE), path.read_text("utf8"), re.MULTILINE):
            yield path, found


def installed(text: str) -> str:
    """Return a page whose user installs the package from an index, instead of a clone."""
    for pattern, words in _INSTALLATION.items():
        text = re.sub(pattern, words, text, flags=re.MULTILINE)
    return text


def pages(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Yield each page that installs a clone, with the text of a release."""
    for path in [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")]:
        if (after := installed(before := path.read_text("utf8"))) != before:
            yield path, after


def problems(root: Path = ROOT) -> list[str]:
    """Return what is to be done before this version can be released."""
    wanted = version(root)
    found = [f"{path} has version {other}; write {wanted}" for path, other in copies(root) if other != wanted]
    dates = re.findall(rf"^## {re.escape(wanted)} \((.*)\)$", (root / "CHANGELOG.md").read_text("utf8"), re.MULTILINE)
    if not dates or not re.fullmatch(r"\d{4}-\d\d-\d\d", dates[0]):
        found.append(f"CHANGELOG.md has no section of {wanted} with a date; write ## {wanted} (YYYY-MM-DD)")
    for path, _ in pages(root):
        found.append(f"{path} installs a clone; run python -m tests.support.programs.release pages, and commit")
    # The tests of a release write to it.
    if changed := git(root, "status", "--porcelain", "--", ".", f":!{parts.PASSED}"):
        found.append(f"these files are not committed:\n{changed}")
    if git(root, "tag", "--list", f"v{wanted}"):
        found.append(f"the tag v{wanted} exists already; raise the version in pyproject.toml")
    return found


def git(root: Path, *words: str) -> str:
    """Run git and return what it prints."""
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.rstrip()


def main() -> int:
    """Write the pages, check, or make the tag; return 1 if something is to be done before."""
    if sys.argv[1:] == ["pages"]:
        for path, text in pages():
            path.write_text(text, "utf8")
        return 0
    if found := problems():
        print("\n".join(f"error: {problem}" for problem in found), file=sys.stderr)
        return 1
    if sys.argv[1:] == ["tag"]:
        tag = f"v{version()}"
        git(ROOT, "tag", "--annotate", tag, "--message", f"Cluster Serving {version()}")
        print(_PUBLISH.format(tag=tag))
    return 0


if __name__ == "__main__":
    sys.exit(main())
