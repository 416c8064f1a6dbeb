"""How-to guides that are followed word by word."""

import pytest

from tests.support.fixtures.pages import DOCS


@pytest.mark.timeout(600)
def test_programs_in_other_languages_ask(follower):
    follower.follow((DOCS / "how-to" / "javascript-java.md").read_text("utf8"))
