"""Base64 as programs write it: in lines, behind the prefix of a data URI, or without padding."""

from __future__ import annotations

import base64
import re

_DATA_URI = re.compile(rb"\s*data:[^,]{0,200};base64,", re.IGNORECASE)
_EXPECTED = "expected the letters A-Z, a-z, 0-9, + and / of base64, perhaps in lines, behind data:…;base64, or unpadded"


def decode(text: str | bytes, lines_only: bool = False) -> bytes:
    """Decode base64.

    Args:
        text: The text. It may have line ends and other blanks, the prefix of a data URI, and no padding.
        lines_only: Take no text without padding, and no blanks but line ends: other texts may look like these.

    Raises:
        ValueError: If it is none; the message says what is expected.
    """
    try:
        # Nearly all texts are of this form.
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        failure = error
    try:
        raw = text.encode("ascii") if isinstance(text, str) else bytes(text)
        raw = _DATA_URI.sub(b"", raw, count=1) if _DATA_URI.match(raw) else raw
        if lines_only:
            return base64.b64decode(raw.replace(b"\r", b"").replace(b"\n", b""), validate=True)
        raw = b"".join(raw.split())
        return base64.b64decode(raw + b"=" * (-len(raw) % 4), validate=True)
    except ValueError:
        raise ValueError(f"{failure}; {_EXPECTED}") from None
