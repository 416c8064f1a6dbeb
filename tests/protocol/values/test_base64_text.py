from __future__ import annotations

import base64

import pytest

from cluster_serving.protocol.values.base64_text import decode

DATA = bytes(range(256))[:200]
TEXT = base64.b64encode(DATA).decode()


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.encode(),
        base64.encodebytes(DATA).decode(),
        base64.encodebytes(DATA).replace(b"\n", b"\r\n"),
        f"data:image/jpeg;base64,{TEXT}",
        f"data:image/png;charset=utf-8;base64,\n{TEXT}",
    ],
)
def test_base64_is_taken_as_programs_write_it(text):
    assert decode(text) == DATA
    assert decode(text, lines_only=True) == DATA


def test_padding_may_be_missing_unless_any_text_is_possible():
    assert decode(TEXT.rstrip("=")) == DATA
    with pytest.raises(ValueError, match="adding"):
        decode(TEXT.rstrip("="), lines_only=True)
    with pytest.raises(ValueError):
        decode("plain text", lines_only=True)


@pytest.mark.parametrize("text", ["ab-_", "ü", "a", b"\xff\xff\xff\xff", "data:image/png,abcd"])
def test_what_is_expected_is_said(text):
    with pytest.raises(ValueError, match=r"expected the letters A-Z"):
        decode(text)
