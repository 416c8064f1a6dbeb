"""The programs of docs/how-to/embedding.md run, where `model` is a model of digits."""

import re
from pathlib import Path

import pytest

from tests.support.payloads import model_zoo

ROOT = Path(__file__).parents[2]
PAGE, FLINK = (ROOT / "docs" / "how-to" / name for name in ("embedding.md", "flink.md"))


def sections():
    """Heading → the Python blocks below it; tests/job/test_record.py runs that of the predictor of a slot."""
    found = {}
    for part in re.split(r"^## ", PAGE.read_text("utf8"), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        if blocks and "cluster_serving.job" not in blocks[0]:
            found[heading] = "".join(blocks)
    return found


def test_the_lines_of_jobs_are_those_of_the_examples():
    programs = [file.read_text("utf8") for file in (ROOT / "examples" / "flink").glob("*.py")]
    lines = re.findall(r"^```py\n(.*?)^```", FLINK.read_text("utf8"), re.MULTILINE | re.DOTALL)
    assert len(lines) >= 2
    for block in lines:
        assert any(block in program for program in programs), block


def test_the_examples_are_short():
    for file in (ROOT / "examples" / "flink").glob("*.py"):
        assert len(file.read_text("utf8").splitlines()) < 40, file


@pytest.mark.parametrize("heading", sections())
def test_the_programs_of_a_section_run(heading, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model_zoo.save_onnx_digits(tmp_path / "model")
    exec(compile(sections()[heading], f"{PAGE.name}: {heading}", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out
