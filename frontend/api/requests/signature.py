"""Signatures of callbacks, as Standard Webhooks (https://www.standardwebhooks.com) describes them."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

_PREFIX = "whsec_"
_LEAST_BYTES = 24


def keys_of(secret: str) -> list[bytes]:
    """Return the keys of a secret: one, or several with spaces between them while the receivers change theirs.

    Raises:
        ValueError: If a key is no base64, or too short.
    """
    return [_key(text) for text in secret.split()]


def headers(keys: Sequence[bytes], message_id: str, seconds: int, body: bytes) -> Mapping[str, str]:
    """Return the headers of a message that is sent at a time, in seconds since the epoch.

    Without keys there is no signature.
    """
    made = {"webhook-id": message_id, "webhook-timestamp": str(seconds)}
    if keys:
        made["webhook-signature"] = " ".join(
            _signature(key, b"%s.%d.%s" % (message_id.encode(), seconds, body)) for key in keys
        )
    return made


def _signature(key: bytes, content: bytes) -> str:
    return f"v1,{base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()}"


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if len(key) < _LEAST_BYTES:
        raise ValueError(
            f"a key of callbackSecret is not base64 of at least {_LEAST_BYTES} bytes; "
            'echo "whsec_$(openssl rand -base64 32)" makes one'
        )
    return key
