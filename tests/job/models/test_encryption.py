from __future__ import annotations

import base64
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from cluster_serving.job.models import load_model
from cluster_serving.job.models.encryption import decrypt_folder, encrypt
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import EngineMissing, ModelError
from tests.support.payloads import model_zoo

BYTES = bytes(range(256)) * 5


def encrypt_folder(source: Path, target: Path, bits: int = 256) -> Path:
    shutil.copytree(source, target)
    for path in target.rglob("*"):
        if path.is_file():
            path.write_bytes(encrypt(path.read_bytes(), "secret", "salt", bits))
    return target


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("content", [b"", b"x", b"x" * 16, BYTES])
def test_a_folder_is_decrypted_and_afterwards_removed(tmp_path, bits, content):
    (tmp_path / "variables").mkdir()
    (tmp_path / "a.bin").write_bytes(encrypt(content, "sécret", "salt", bits))
    (tmp_path / "variables" / "b").write_bytes(encrypt(BYTES, "sécret", "salt", bits))
    with decrypt_folder(tmp_path, "sécret", "salt") as folder:
        assert (folder / "a.bin").read_bytes() == content
        assert (folder / "variables" / "b").read_bytes() == BYTES
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_files_with_a_zero_vector_are_decrypted(tmp_path):
    """What version 0.9.0 of the original wrote."""
    text = BYTES.decode("latin-1").encode()
    padded = text + bytes([16 - len(text) % 16]) * (16 - len(text) % 16)
    key = PBKDF2HMAC(SHA256(), 32, b"salt", 65536).derive(b"secret")
    encryptor = Cipher(algorithms.AES(key), modes.CBC(bytes(16))).encryptor()
    (tmp_path / "a.bin").write_bytes(base64.b64encode(encryptor.update(padded)))
    with decrypt_folder(tmp_path, "secret", "salt") as folder:
        assert (folder / "a.bin").read_bytes() == BYTES


def test_files_that_are_not_encrypted_are_taken_as_they_are(tmp_path):
    (tmp_path / "a.bin").write_bytes(encrypt(BYTES, "secret", "salt"))
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    with decrypt_folder(tmp_path, "secret", "salt") as folder:
        assert (folder / "labels.txt").read_text() == "cat\ndog\n"


@pytest.mark.parametrize(("secret", "salt"), [("wrong", "salt"), ("secret", "wrong"), ("", "")])
def test_a_wrong_secret_or_salt_is_refused(tmp_path, secret, salt):
    (tmp_path / "a.bin").write_bytes(encrypt(BYTES, "secret", "salt"))
    with (
        pytest.raises(ModelError, match="cannot be decrypted: secret or salt is wrong"),
        decrypt_folder(tmp_path, secret, salt),
    ):
        pass


def test_a_folder_without_encrypted_files_is_refused(tmp_path):
    (tmp_path / "net.xml").write_text("<net/>")
    with pytest.raises(ModelError, match="is not encrypted"), decrypt_folder(tmp_path, "secret", "salt"):
        pass


def test_the_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with (
        pytest.raises(EngineMissing, match=r"pip install 'cluster-serving\[encryption\]'"),
        decrypt_folder(tmp_path, "", ""),
    ):
        pass


def test_an_encrypted_model_answers_as_the_plain_one_in_every_format(digits_folder, tmp_path):
    folder = encrypt_folder(digits_folder, tmp_path / "model")
    model = load_model(ModelOptions(str(folder), encrypted=True), "secret", "salt")
    x = model_zoo.digits_data()[0][:3]
    np.testing.assert_allclose(model.predict([x])[0], model_zoo.digits_mlp(x), atol=0.02)


def test_errors_name_the_folder_that_the_user_knows(tmp_path):
    (tmp_path / "net.onnx").write_bytes(encrypt(b"garbage", "secret", "salt"))
    with pytest.raises(ModelError, match=str(tmp_path / "net.onnx")):
        load_model(ModelOptions(str(tmp_path), encrypted=True), "secret", "salt")


def test_labels_that_look_encrypted_are_taken_as_they_are(tmp_path):
    labels = "\n".join(["abcdefgh"] * 8)  # base64 of 48 bytes
    (tmp_path / "a.bin").write_bytes(encrypt(BYTES, "secret", "salt"))
    (tmp_path / "labels.txt").write_text(labels)
    with decrypt_folder(tmp_path, "secret", "salt") as folder:
        assert (folder / "a.bin").read_bytes() == BYTES
        assert (folder / "labels.txt").read_text() == labels
