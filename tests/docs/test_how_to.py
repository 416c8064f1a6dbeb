"""What the how-to guides say about `config.yaml` can be read."""

import pytest

from cluster_serving.launcher.config import file as config_file
from tests.support.fixtures.pages import DOCS, blocks


@pytest.mark.parametrize("name", ["faq"])
def test_keys_are_those_that_there_are(tmp_path, name):
    page = DOCS / "how-to" / f"{name}.md"
    for language, _, block in blocks(page.read_text("utf8")):
        assert language == "yaml"
        (tmp_path / "config.yaml").write_text(f"modelPath: model\n{block}")
        assert config_file.read(tmp_path / "config.yaml").flink_options


@pytest.mark.timeout(600)
def test_programs_in_other_languages_ask(follower):
    follower.follow((DOCS / "how-to" / "javascript-java.md").read_text("utf8"))
