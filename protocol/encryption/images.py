"""Encrypted images (`recordEncrypted`): AES in GCM mode, with a key that client and server derive from two texts.

An encrypted image consists of 12 bytes of IV, the ciphertext and 16 bytes of tag. The key is derived by PBKDF2 with
HMAC-SHA256 and 65,536 rounds, as in the original. Images in Redis can then not be read, nor changed unnoticed. Names,
numbers, strings and results are not encrypted.

Requires the package `cryptography`.
"""

from __future__ import annotations

import base64
import importlib.util
import os
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from cluster_serving.protocol.errors import EngineMissing, InvalidInput
from cluster_serving.protocol.inputs import Image
from cluster_serving.protocol.record_key import RecordKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_ROUNDS = 65_536
_IV_BYTES = 12
_TAG_BYTES = 16


def encrypt(image: bytes, key: RecordKey) -> Image:
    """Encrypt the bytes of an image file with the server's key. The result is an input for `enqueue`.

    Raises:
        EngineMissing: If the package `cryptography` is not installed.
    """
    iv = os.urandom(_IV_BYTES)
    return Image(iv + _cipher(key).encrypt(iv, image, None))


def prepare(key: RecordKey) -> None:
    """Derive the keys for `decrypt` in advance, so that no request has to wait."""
    for candidate in _sizes(key):
        _cipher(candidate)


def decrypt(image: Image, key: RecordKey, name: str = "image") -> Image:
    """Decrypt an image that `encrypt` or an original client encrypted, with a key of either size.

    The size `key.bits` is tried first. The original's own benchmark encrypts the base64 text of an image file instead
    of the file; that text is read as well. Messages contain the `name` of the input.

    Raises:
        InvalidInput: If the image was encrypted with another key, was changed, or is not encrypted.
    """
    from cryptography.exceptions import InvalidTag

    if len(image.data) < _IV_BYTES + _TAG_BYTES:
        raise InvalidInput(
            f"input {name!r} is an image of {len(image.data)} bytes; an encrypted one has at least "
            f"{_IV_BYTES + _TAG_BYTES} (recordEncrypted)"
        )
    for candidate in _sizes(key):
        with suppress(InvalidTag):
            plain = _cipher(candidate).decrypt(image.data[:_IV_BYTES], image.data[_IV_BYTES:], None)
            return Image(_without_base64(plain))
    raise InvalidInput(
        f"input {name!r} is an image that cannot be decrypted: encrypted with another key, changed, or not encrypted "
        "at all (recordEncrypted)"
    )


def _without_base64(plain: bytes) -> bytes:
    try:
        # No image file consists of the characters of base64 alone.
        return base64.b64decode(plain, validate=True)
    except ValueError:
        return plain


def _sizes(key: RecordKey) -> tuple[RecordKey, RecordKey]:
    other: Literal[128, 256] = 128 if key.bits == 256 else 256
    return key, replace(key, bits=other)


@lru_cache(maxsize=16)
def _cipher(key: RecordKey) -> AESGCM:
    # Cached, because deriving a key takes about 20 ms.
    if importlib.util.find_spec("cryptography") is None:
        raise EngineMissing(
            "encrypted records need the Python package cryptography, which is not installed: run pip install "
            "'cluster-serving[encryption]'"
        )
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(derive(key.secret, key.salt, key.bits))


def derive(secret: str, salt: str, bits: int) -> bytes:
    """Return the key that the original derives from two texts, for records and for models."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

    return bytes(PBKDF2HMAC(SHA256(), bits // 8, salt.encode(), _ROUNDS).derive(secret.encode()))
