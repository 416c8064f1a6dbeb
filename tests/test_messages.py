"""The texts that commands, client and front end can show (`python -m tests.support.programs.messages` prints them)."""

import re

import pytest

from tests.support.programs.messages import messages

OWN_WORDS = (
    "patience|convict|cargo|strangers?|errands?|wishes|succession|predecessor|successor|by hand|beside those|anew|"
    "whoever|at times|told"
)


@pytest.fixture(scope="module")
def shown():
    return messages()


def test_the_texts_of_all_packages_are_found(shown):
    assert len(shown) > 900
    assert {message.file.partition("/")[0] for message in shown} >= {"client", "frontend", "job", "launcher", "embed"}
    texts = "\n".join(map(str, shown))
    assert "--canary and --shadow exclude each other: use one of them" in texts
    assert "{config_path} exists already; edit it, or use --force to overwrite it" in texts


@pytest.mark.parametrize(
    "pattern",
    [
        rf"\b(?:{OWN_WORDS})\b",
        # A negation in place of a noun: "is no filter", where English has "is not a filter".
        r"(?<!there )\b(?:is|are|was|were) no (?!longer|more)\w",
    ],
)
def test_no_text_has_a_word_or_a_turn_that_only_this_project_uses(shown, pattern):
    # An expression in braces is replaced by a value.
    texts = {str(message): re.sub(r"\{[^{}]*\}", "X", message.text) for message in shown}
    assert [where for where, text in texts.items() if re.search(pattern, text)] == []
