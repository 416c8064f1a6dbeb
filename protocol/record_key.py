"""The texts of the key of encrypted images (`protocol.encryption`), which configurations and options hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

_PUBLISHED = ("secret", "salt")


@dataclass(frozen=True)
class RecordKey:
    """The texts that a key is derived from; client and server need the same.

    Attributes:
        secret: Secret text of the operator's own.
        salt: Second text, which need not be secret.
        bits: Size of the key to encrypt with: 128, as in 0.10 to 2.0 of the original, or 256, as from 2.1 on. Both
            sizes are decrypted.
        allow_published: Accept the key in the original's published source code. That key protects nothing; it exists
            for clients that cannot use another.

    Raises:
        ValueError: If a text is empty, the size is neither 128 nor 256, or the key is the published one.
    """

    secret: str = field(repr=False)
    salt: str = field(repr=False)
    bits: Literal[128, 256] = 256
    allow_published: bool = False

    def __post_init__(self) -> None:
        if not self.secret or not self.salt:
            raise ValueError("the key of encrypted records needs a secret and a salt, and neither may be empty")
        if self.bits not in (128, 256):
            raise ValueError(f"the key of encrypted records has {self.bits} bits; expected 128 or 256")
        if (self.secret, self.salt) == _PUBLISHED and not self.allow_published:
            raise ValueError(
                "this is the key in the original's published source code, which protects nothing; choose another, or "
                "pass allow_published=True"
            )


def published_key(bits: Literal[128, 256] = 256) -> RecordKey:
    """Return the published key of original clients that cannot use another. That key protects nothing."""
    return RecordKey(*_PUBLISHED, bits=bits, allow_published=True)
