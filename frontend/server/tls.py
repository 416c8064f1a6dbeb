"""Certificates and private keys from PEM and PKCS12 files. A file that cannot be used raises `StartError`."""

import ssl
import tempfile
from pathlib import Path

from pydantic import SecretStr

from cluster_serving.frontend.errors import StartError
from cluster_serving.frontend.options import HttpOptions


def server_context(options: HttpOptions) -> ssl.SSLContext:
    """Return the TLS context of the HTTPS server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    path = options.https_key_store_path
    try:
        if path:
            # Python's ssl reads keys only from files; this one is readable by this user alone.
            with tempfile.NamedTemporaryFile() as file:
                file.write(b"".join(server_pem(options)))
                file.flush()
                context.load_cert_chain(file.name)
        else:
            context.load_cert_chain(options.https_certificate_path, options.https_private_key_path)
    except OSError as error:
        source = path or f"{options.https_certificate_path} with key {options.https_private_key_path}"
        raise StartError(f"certificate {source} cannot be used: {error}") from None
    return context


def server_pem(options: HttpOptions) -> tuple[bytes, bytes]:
    """Return the server's private key and certificate chain, as PEM."""
    path = options.https_key_store_path
    if not path:
        return _bytes(options.https_private_key_path), _bytes(options.https_certificate_path)
    key, chain = _pkcs12(path, options.https_key_store_token)
    if not key or not chain:
        raise StartError(f"key store {path} does not hold a certificate and its private key")
    return key, chain


def certificates(path: str, token: SecretStr) -> str:
    """Return the certificates of a trust store, as PEM text."""
    data = _bytes(path)
    if b"-----BEGIN CERTIFICATE-----" in data:
        return data.decode("ascii", "replace")
    _, pem = _pkcs12(path, token)
    if not pem:
        raise StartError(f"trust store {path} does not hold a certificate")
    return pem.decode("ascii")


def _pkcs12(path: str, token: SecretStr) -> tuple[bytes, bytes]:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise StartError("PKCS12 files need a package: pip install 'cluster-serving[encryption]'") from None
    data = _bytes(path)
    if data[:4] == b"\xfe\xed\xfe\xed":
        raise StartError(
            f"{path} is a JKS file; convert it: keytool -importkeystore -srckeystore {path} -destkeystore store.p12 "
            "-deststoretype PKCS12"
        )
    try:
        store = pkcs12.load_pkcs12(data, token.get_secret_value().encode() or None)
    except ValueError as error:
        raise StartError(f"{path} cannot be read as PKCS12 with the given password (token): {error}") from None
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) if store.key else b""
    chain = [store.cert, *store.additional_certs] if store.cert else store.additional_certs
    return key, b"".join(item.certificate.public_bytes(Encoding.PEM) for item in chain)


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from None
