"""The programs of docs/embedding.md run, in their order, where `model` is a model of digits."""

import re
from pathlib import Path

import pytest

from tests.support.payloads import model_zoo

PAGE = Path(__file__).parents[2] / "docs" / "embedding.md"


def sections():
    """Heading → the Python blocks below it."""
    found = {}
    for part in re.split(r"^## ", PAGE.read_text("utf8"), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        if blocks := re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            found[heading] = "".join(blocks)
    return found


@pytest.mark.parametrize("heading", sections())
def test_the_programs_of_a_section_run(heading, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model_zoo.save_onnx_digits(tmp_path / "model")
    exec(compile(sections()[heading], f"{PAGE.name}: {heading}", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out
