"""What `make dist`, `make licenses` and `make release` promise."""

import email
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.fixtures.commands import BIN
from tests.support.programs import licenses, release

ROOT = Path(__file__).parent.parent
CODE = ("client", "connectors", "embed", "flink-conf", "frontend", "job", "launcher", "protocol", "settings")


def build(folder, *options, root=ROOT):
    subprocess.run([sys.executable, "-m", "build", *options, "--outdir", folder, root], check=True, capture_output=True)


def contents(folder):
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


def test_the_wheel_of_the_sdist_is_that_of_the_clone(dist, tmp_path):
    build(tmp_path, "--wheel")
    assert contents(dist) == contents(tmp_path)


def test_the_wheel_has_the_files_of_each_package_and_no_others(dist):
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *CODE, "bench/load"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    expected = {f"cluster_serving/{name.replace('flink-conf', 'flink_conf')}" for name in listed.stdout.splitlines()}
    packed = {name for name in contents(dist) if ".dist-info/" not in name}
    assert packed == expected | {"cluster_serving/__init__.py"}


def test_an_index_takes_what_was_built(dist):
    files = [*dist.glob("*.whl"), *dist.glob("*.tar.gz")]
    assert len(files) == 2
    checks = ([BIN / "twine", "check", "--strict", *files], [BIN / "check-wheel-contents", files[0]])
    for check in checks:
        ran = subprocess.run(check, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def page_on_an_index(wheel):
    (name,) = [name for name in wheel if name.endswith("/METADATA")]
    return email.message_from_bytes(wheel[name])


LINKS = re.compile(r"\]\(([^)]+)\)")


def test_the_page_on_an_index_has_no_link_to_a_file(dist):
    page = page_on_an_index(contents(dist))
    text = page.get_payload()
    assert "## Serve your own model" in text and "your own Python code" in text
    assert [link for link in LINKS.findall(text) if not link.startswith("https://")] == []
    assert "![" not in text and page.get_all("Project-URL") is None


def test_the_page_on_an_index_leads_to_the_repository_that_is_named(tmp_path):
    clone, repository = tmp_path / "clone", "https://example.org/owner/serving"
    clone.mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "client", "cluster_serving"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, clone / name, **({"symlinks": True} if copy is shutil.copytree else {}))
    change(clone / "pyproject.toml", 'repository = ""', f'repository = "{repository}"')
    build(tmp_path / "dist", "--wheel", root=clone)
    page = page_on_an_index(contents(tmp_path / "dist"))
    at = f"v{release.version(ROOT)}"
    links = LINKS.findall(page.get_payload())
    assert f"{repository}/blob/{at}/docs/how-to/handlers.md" in links
    assert f"{repository}/raw/{at}/docs/images/ui.png" in links
    assert [link for link in links if not link.startswith("https://")] == []
    assert f"Source, {repository}" in page.get_all("Project-URL")


def test_the_version_is_the_same_wherever_it_is_repeated():
    assert {found for _, found in release.copies(ROOT)} == {release.version(ROOT)}


@pytest.fixture
def clone(tmp_path):
    """A clone with what a release reads, whose changelog has a date."""
    for name in ("pyproject.toml", "CHANGELOG.md", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("charts", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    change(tmp_path / "CHANGELOG.md", r"\(unreleased\)", "(2026-01-02)")
    for path, text in release.pages(tmp_path):
        path.write_text(text, "utf8")
    release.git(tmp_path, "init", "--quiet")
    release.git(tmp_path, "config", "user.name", "A")
    release.git(tmp_path, "config", "user.email", "a@b.example")
    release.git(tmp_path, "add", ".")
    release.git(tmp_path, "commit", "--quiet", "--message", "All")
    return tmp_path


def change(path, pattern, text):
    path.write_text(re.sub(pattern, text, path.read_text("utf8"), count=1), "utf8")


@pytest.mark.parametrize(
    ("file", "pattern", "text", "problem"),
    [
        ("CHANGELOG.md", r"\(2026-01-02\)", "(unreleased)", "with a date"),
        ("pyproject.toml", 'version = ".*"', 'version = "9.0"', r"Chart\.yaml has version .*; write 9\.0"),
        ("charts/cluster-serving/values.yaml", r"(-client):[\d.]+", r"\1:0.0.9", r"values\.yaml has version 0\.0\.9"),
    ],
)
def test_what_is_missing_before_a_release_is_named(clone, file, pattern, text, problem):
    assert release.problems(clone) == []
    change(clone / file, pattern, text)
    found = release.problems(clone)
    assert any(re.search(problem, each) for each in found)
    assert any("not committed" in each and file in each for each in found)


def test_a_user_of_a_release_installs_it_from_an_index(clone):
    readme = (clone / "README.md").read_text("utf8")
    assert "```sh\npipx install 'cluster-serving[quickstart]'\ncluster-serving quickstart\n```" in readme
    assert "base64 -w0 quickstart/images" in readme
    assert not re.search(r"git clone|\./cluster-serving|\.quickstart|first release", readme)
    tutorial = clone / "docs" / "tutorials" / "first-model.md"
    assert "\npip install 'cluster-serving[quickstart]'\n" in tutorial.read_text("utf8")
    change(tutorial, "pip install '", "pip install './")
    assert any(f"{tutorial} installs a clone" in problem for problem in release.problems(clone))


def test_a_record_that_the_tests_passed_does_not_keep_a_release_back(clone):
    (clone / ".ci").mkdir()
    (clone / ".ci" / "passed.json").write_text("{}")
    assert release.problems(clone) == []


def test_a_release_is_tagged_once_and_stays_here(clone):
    program = [sys.executable, "-m", "tests.support.programs.release", "tag"]
    tagged, again = (
        subprocess.run(
            program, cwd=clone, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
        )
        for _ in range(2)
    )
    assert tagged.returncode == 0, tagged.stderr
    tag = f"v{release.version(ROOT)}"
    assert release.git(clone, "cat-file", "-t", tag) == "tag"
    assert f"git push origin {tag}" in tagged.stdout and "twine upload" in tagged.stdout
    assert again.returncode == 1
    assert f"the tag {tag} exists already" in again.stderr


def test_every_package_has_a_license_that_is_allowed(tmp_path):
    program = [sys.executable, "-m", "tests.support.programs.licenses", tmp_path / "licenses.md"]
    ran = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = (tmp_path / "licenses.md").read_text("utf8").splitlines()
    assert any(re.search(r"\| apache-flink \| 2\..*Apache", row) for row in rows)
    assert not any("| ruff |" in row for row in rows)


@pytest.mark.parametrize(
    ("license", "allowed"),
    [
        ("Apache-2.0 OR BSD-3-Clause", True),
        ("MPL-2.0 AND MIT", True),
        ("MIT License", True),
        ("Apache Software License; GNU General Public License v3 or later (GPLv3+)", False),
        ("LGPL-2.1 AND MIT", False),
        ("UNKNOWN", False),
    ],
)
def test_every_part_of_a_license_has_to_be_allowed(license, allowed):
    assert licenses.is_allowed(license) is allowed
