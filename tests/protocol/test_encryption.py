"""Encrypted images."""

import base64
import hashlib
import importlib.util
import os

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cluster_serving.protocol.encryption.images import decrypt, encrypt, prepare
from cluster_serving.protocol.errors import EngineMissing, InvalidInput
from cluster_serving.protocol.inputs import Image
from cluster_serving.protocol.record_key import RecordKey, published_key


def sealed_by_the_original(content, bits=128, secret=b"secret", salt=b"salt"):
    """What the original's `encrypt_bytes_with_AES_GCM` gives for its default key."""
    iv = os.urandom(12)
    return iv + AESGCM(hashlib.pbkdf2_hmac("sha256", secret, salt, 65_536, bits // 8)).encrypt(iv, content, None)


KEY = RecordKey("of my own", "and my salt")


@pytest.mark.parametrize("bits", [128, 256])
def test_what_is_encrypted_can_be_decrypted_with_the_same_key_alone(bits):
    key = RecordKey(KEY.secret, KEY.salt, bits)
    sealed = encrypt(b"a picture", key)
    assert b"picture" not in sealed.data
    assert len(sealed.data) == 12 + len(b"a picture") + 16
    assert decrypt(sealed, key) == Image(b"a picture")
    assert decrypt(sealed, RecordKey(KEY.secret, KEY.salt, 384 - bits)) == Image(b"a picture")
    with pytest.raises(InvalidInput, match="input 'photo' is an image that cannot be decrypted"):
        decrypt(sealed, RecordKey(KEY.secret, "other", bits), "photo")


def test_no_two_encryptions_are_alike():
    assert encrypt(b"a picture", KEY) != encrypt(b"a picture", KEY)


@pytest.mark.parametrize("data", [b"", b"short", b"\xff\xd8 a JPEG that nobody encrypted"])
def test_what_was_not_encrypted_is_refused(data):
    with pytest.raises(InvalidInput, match="encrypted"):
        decrypt(Image(data), KEY)


def test_a_changed_image_is_refused():
    sealed = bytearray(encrypt(b"a picture", KEY).data)
    sealed[14] ^= 1
    with pytest.raises(InvalidInput, match="changed"):
        decrypt(Image(bytes(sealed)), KEY)


@pytest.mark.parametrize("bits", [128, 256])
def test_images_of_original_clients_are_read_with_the_published_key(bits):
    sealed = Image(sealed_by_the_original(b"a picture", bits))
    assert decrypt(sealed, published_key()) == Image(b"a picture")


def test_the_base64_text_of_an_image_may_have_been_encrypted():
    assert decrypt(encrypt(base64.b64encode(b"\xff\xd8 a picture"), KEY), KEY) == Image(b"\xff\xd8 a picture")


def test_a_missing_package_is_named_with_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    key = RecordKey("never", "derived")
    for use in (lambda: prepare(key), lambda: encrypt(b"a picture", key)):
        with pytest.raises(EngineMissing, match=r"pip install 'cluster-serving\[encryption\]'"):
            use()


def test_the_published_key_is_refused_unless_it_is_asked_for():
    with pytest.raises(ValueError, match="protects nothing"):
        RecordKey("secret", "salt")


@pytest.mark.parametrize(("secret", "salt", "bits"), [("", "salt", 256), ("a", "", 256), ("a", "b", 192)])
def test_half_a_key_is_refused(secret, salt, bits):
    with pytest.raises(ValueError, match="key of encrypted records"):
        RecordKey(secret, salt, bits)


def test_a_key_does_not_show_its_secret():
    assert "own" not in repr(KEY)
