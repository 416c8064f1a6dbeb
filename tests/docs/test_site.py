"""The site of the pages."""

import shutil
import subprocess
import sys

from tests.support.fixtures.pages import DOCS, ROOT


def test_the_site_is_built_without_a_warning(tmp_path):
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in DOCS.rglob("*.md"):
        assert (tmp_path / "site" / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    assert "cluster-serving-start" in (tmp_path / "site" / "search.json").read_text("utf8")
