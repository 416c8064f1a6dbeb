"""Model files encrypted as by the original: AES-CBC with a key derived from a secret and a salt."""

import base64
import binascii
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster_serving.protocol.encryption.images import derive
from cluster_serving.protocol.errors import EngineMissing, ModelError

_BLOCK = 16
# Size of the key in bits, and True if the first block is the initialization vector, which is zero otherwise. The zero
# vector is tried first: files that have it could be read with another variant too, and would lose their beginning.
_VARIANTS = ((256, False), (256, True), (128, True))
_MEMORY = Path("/dev/shm")  # noqa: S108 - only as the parent of a private folder


def encrypt(content: bytes, secret: str, salt: str, bits: int = 256) -> bytes:
    """Encrypt a file.

    Args:
        content: Content of the file.
        secret: Secret from which the key is derived, by 65536 rounds of PBKDF2-HMAC-SHA256.
        salt: Salt of the derivation.
        bits: Size of the key: 128 or 256.

    Returns:
        Base64 text of a random initialization vector and the encrypted bytes. The bytes are encrypted as the UTF-8 form
        of ISO-8859-1 text, with PKCS #5 padding.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    vector = os.urandom(_BLOCK)
    padder = PKCS7(8 * _BLOCK).padder()
    padded = padder.update(content.decode("latin-1").encode()) + padder.finalize()
    encryptor = Cipher(algorithms.AES(derive(secret, salt, bits)), modes.CBC(vector)).encryptor()
    return base64.b64encode(vector + encryptor.update(padded) + encryptor.finalize())


@contextmanager
def decrypt_folder(folder: str | Path, secret: str, salt: str) -> Iterator[Path]:
    """Decrypt a model folder and its subfolders into a private temporary folder, which is removed at the end.

    The key may have 128 or 256 bits, and the initialization vector may be zero (version 0.9.0 of the original). Both
    have to be the same for all encrypted files. Other files are copied as they are; see also `scratch_folder`.

    Raises:
        EngineMissing: If the package `cryptography` is not installed.
        ModelError: If no file is encrypted, or the files were encrypted with another secret or salt.
    """
    if importlib.util.find_spec("cryptography") is None:
        raise EngineMissing(
            f"the model in {folder} is encrypted, and the Python package cryptography is not installed: "
            f"run pip install 'cluster-serving[encryption]'"
        )
    folder = Path(folder)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    contents = {path.relative_to(folder): path.read_bytes() for path in paths}
    encrypted = {path: data for path, content in contents.items() if (data := _decode(content)) is not None}
    if not encrypted:
        raise ModelError(f"the model in {folder} is not encrypted: no file in it is base64 text of whole blocks")
    # A list of labels may look encrypted by chance; the largest file is one of the model's.
    model = max(encrypted, key=lambda path: len(encrypted[path]))
    tries = (_decrypt_all(encrypted, secret, salt, *variant) for variant in _VARIANTS)
    plain = next((decrypted for decrypted in tries if model in decrypted), None)
    if plain is None:
        raise ModelError(
            f"the model in {folder} cannot be decrypted: secret or salt is wrong, or the file {model} is damaged"
        )
    contents |= plain
    with scratch_folder(sum(map(len, contents.values()))) as scratch:
        for path, content in contents.items():
            target = scratch / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        del contents, plain
        yield scratch


@contextmanager
def scratch_folder(size: int) -> Iterator[Path]:
    """Make a folder that only this user may enter, yield it, and remove it at the end.

    The folder is in memory (/dev/shm) if twice the `size`, in bytes, fits there, so that nothing reaches a disk.
    """
    parent = _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 * size else None
    with tempfile.TemporaryDirectory(prefix="cluster-serving-", dir=parent) as name:
        yield Path(name)


def _decode(content: bytes) -> bytes | None:
    try:
        data = base64.b64decode(b"".join(content.split()), validate=True)
    except binascii.Error:
        return None
    return data if data and len(data) % _BLOCK == 0 else None


def _decrypt_all(
    encrypted: dict[Path, bytes], secret: str, salt: str, bits: int, has_vector: bool
) -> dict[Path, bytes]:
    """Return the decrypted files by path, without those that do not decrypt to padded text."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    key = derive(secret, salt, bits)
    result = {}
    for path, data in encrypted.items():
        vector, blocks = (data[:_BLOCK], data[_BLOCK:]) if has_vector else (bytes(_BLOCK), data)
        decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
        unpadder = PKCS7(8 * _BLOCK).unpadder()
        with suppress(ValueError):  # wrong padding, or text that is not UTF-8 of ISO-8859-1
            padded = decryptor.update(blocks) + decryptor.finalize()
            result[path] = (unpadder.update(padded) + unpadder.finalize()).decode().encode("latin-1")
    return result
