"""Model files encrypted as by the original."""

import base64
import os

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from cluster_serving.protocol.encryption import derive


def encrypt(content: bytes, secret: str, salt: str, bits: int = 256) -> bytes:
    """Return base64 text of a random initialization vector and the encrypted UTF-8 form of ISO-8859-1 text."""
    vector = os.urandom(16)
    padder = PKCS7(128).padder()
    padded = padder.update(content.decode("latin-1").encode()) + padder.finalize()
    encryptor = Cipher(algorithms.AES(derive(secret, salt, bits)), modes.CBC(vector)).encryptor()
    return base64.b64encode(vector + encryptor.update(padded) + encryptor.finalize())
