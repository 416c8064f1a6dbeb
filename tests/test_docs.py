"""The pages in Markdown name files that exist, link to headings that exist, and are read in minutes."""

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
    *sorted(DOCS.rglob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")),
]
FOLDERS = (
    "bench|charts|client|cluster_serving|connectors|docs|embed|examples|flink-conf|frontend|job|launcher|monitoring|"
    "protocol|settings|tests"
)

MOST_WORDS = 900
"""Words that a page may have, without programs and what is generated between markers."""

MOST_PHRASES, MOST_WORDS_OF_A_PHRASE = 20, 9
"""Phrases of docs/asked.json for one heading, and words of each: a heading with all words crowds out the others."""


def without_programs(page):
    return re.sub(r"^ *```.*?^ *```", "", page.read_text("utf8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", without_programs(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page):
    named = set(re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", page.read_text("utf8")))
    assert {name for name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text("utf8")):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def in_nav(entries):
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else (entry,):
            yield from in_nav(value) if isinstance(value, list) else (value,)


def test_every_page_is_in_the_navigation_once():
    nav = sorted(in_nav(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf8"))["nav"]))
    assert nav == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_a_page_has_one_title_and_no_heading_twice():
    for page in DOCS.rglob("*.md"):
        headings = re.findall(r"^(#+) (.*)$", without_programs(page), re.MULTILINE)
        assert [level for level, _ in headings].count("#") == 1, page
        assert len({text for _, text in headings}) == len(headings), page


def test_words_by_which_users_ask_are_few_and_lead_to_one_heading_that_exists():
    asked = json.loads((DOCS / "asked.json").read_text("utf8"))
    for place, phrases in asked.items():
        path, _, anchor = place.partition("#")
        assert (DOCS / path).is_file(), place
        # The site joins dashes, which GitHub does not.
        assert not anchor or anchor in {re.sub("-+", "-", name).strip("-") for name in anchors(DOCS / path)}, place
        assert 0 < len(phrases) <= MOST_PHRASES, place
        assert [phrase for phrase in phrases if len(phrase.split()) > MOST_WORDS_OF_A_PHRASE] == [], place
    every = sorted(phrase.lower() for phrases in asked.values() for phrase in phrases)
    assert {one for one, other in itertools.pairwise(every) if one == other} == set()
    guides = {str(page.relative_to(DOCS)) for page in (DOCS / "how-to").rglob("*.md")}
    assert guides - {place.partition("#")[0] for place in asked} == set()


def test_a_page_is_read_in_minutes():
    for page in DOCS.rglob("*.md"):
        own = re.sub(r"<!-- ([\w ]+): begin -->.*?<!-- \1: end -->", "", without_programs(page), flags=re.DOTALL)
        assert sum(1 for word in own.split() if re.search(r"\w", word)) <= MOST_WORDS, page


def test_the_first_answer_of_the_readme_comes_soon():
    text = (ROOT / "README.md").read_text("utf8")
    assert len(text.partition("\nNow ask it")[0].split()) <= 350
    assert len(text.split()) <= 750
    assert text.count("![") == 1


@pytest.mark.parametrize("page", sorted((DOCS / "tutorials").glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_is_short(page):
    assert 300 <= len(page.read_text("utf8").split()) <= 900


def test_the_time_of_the_tests_is_that_of_make():
    (minutes,) = re.findall(r"^MINUTES := (\d+)$", (ROOT / "Makefile").read_text("utf8"), re.MULTILINE)
    assert f"| about {minutes} minutes |" in (ROOT / "CONTRIBUTING.md").read_text("utf8")


def test_every_dependency_has_a_row_with_its_purpose():
    project = (ROOT / "pyproject.toml").read_text("utf8")
    section = project[project.index("\ndependencies") : project.index("[project.scripts]")]
    named = set(re.findall(r"^ +\"([A-Za-z0-9-]+)", section, re.MULTILINE)) - {"cluster-serving"}
    table = (DOCS / "explanation" / "dependencies.md").read_text("utf8")
    assert len(named) > 20
    assert {name for name in named if name not in table} == set()


def test_the_kernel_is_as_long_as_its_page_says():
    page = (DOCS / "explanation" / "architecture.md").read_text("utf8")
    section = page.partition("## The kernel")[2].partition("\n## ")[0]
    told = {name: int(lines) for name, lines in re.findall(r"`([\w/]+\.py)` \((\d+)\)", section)}
    assert len(told) > 50
    lines = {name: len((ROOT / name).read_text("utf8").splitlines()) for name in told}
    # Within a tenth, so that not every change is one of the page.
    assert {name: lines[name] for name in told if abs(lines[name] - told[name]) > max(10, told[name] / 10)} == {}
    (total,) = re.findall(r"these ([\d,]+) serve", section)
    assert abs(sum(lines.values()) - int(total.replace(",", ""))) < 500
