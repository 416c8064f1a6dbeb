"""The pages of docs/reference/ that come from the code."""

import pytest

from tests.support.programs import reference


@pytest.mark.parametrize("page", reference.PAGES)
def test_a_page_has_what_the_code_has(page):
    now = (reference.FOLDER / page).read_text("utf8")
    assert now == reference.written(page), "run make reference"


def test_a_page_without_markers_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    (tmp_path / "config.md").write_text("# Keys")
    with pytest.raises(ValueError, match=r"config\.md has no lines <!-- keys: begin -->"):
        reference.written("config.md")


def test_text_of_the_code_is_no_markdown_by_accident():
    assert reference.text("*.xml or <name>, `a|b*`; see docs/how-to/deploy/yarn.md") == (
        r"\*.xml or \<name>, `a\|b*`; see [Deploy on YARN](../how-to/deploy/yarn.md)"
    )


def test_a_docstring_keeps_its_sections():
    words = """Do it.

    Args:
        one: The first, and
            more of it.
        two: The second.

    Returns:
        What was done.
    """
    assert list(reference._docstring(words)) == [
        "Do it.",
        "**Args**\n\n- `one`: The first, and more of it.\n- `two`: The second.",
        "**Returns** What was done.",
    ]
