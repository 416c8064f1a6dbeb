"""Texts that are to be UTF-8."""

from __future__ import annotations

import codecs


def fault(data: bytes) -> str:
    """Return the first place at which bytes are not UTF-8, and the encoding that is expected; empty if all are."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        found = "the text is UTF-16" if utf16 else f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8"
        return f"{found}; expected a text in UTF-8"
    return ""
