"""What `cluster-serving-cli try` shows of outputs."""

import numpy as np

from cluster_serving.job.programs.dev_runner import shown


def test_outputs_are_shown_by_name():
    lines = shown({"x": np.array([1.5, 2], "f4"), "text": "a\nb", "json": {"b": 1, "a": [2]}})
    assert list(lines) == ["x: float32[2] [1.5, 2. ]", "text: 'a\\nb'", "json: {'b': 1, 'a': [2]}"]


def test_a_long_text_is_cut():
    assert "more characters" not in "".join(shown({"text": "a" * 2000}))
    assert list(shown({"mask": "a" * 2001})) == [f"mask: {'a' * 200!r} and 1,801 more characters"]
