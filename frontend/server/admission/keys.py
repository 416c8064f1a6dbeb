"""API keys, in a file with a line `name:hash` for each."""

import hashlib
import hmac
import logging
import re
import secrets
import time
from pathlib import Path

from cluster_serving.frontend.errors import StartError, Unauthenticated

log = logging.getLogger(__name__)

_LINE = re.compile(r"([A-Za-z0-9_.@-]{1,64}):([0-9a-f]{64})")
_RECHECK = 5.0
"""Seconds after which the file is checked for changes."""


class Keys:
    """API keys of a file. A change of the file takes effect within seconds, unless the file cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hashes: dict[str, bytes] = {}
        self._stamp = 0
        self._checked_at = 0.0
        self._read()

    def owner(self, key: str) -> str:
        """Return the name of a key. A key that is unknown, or empty, raises `Unauthenticated`."""
        if time.monotonic() - self._checked_at > _RECHECK:
            try:
                self._read()
            except StartError as error:
                # The file may be half written at this moment, and requests with known keys must go on.
                log.warning("the API keys that were read before remain valid: %s", error)
        if not key:
            raise Unauthenticated("an API key is needed: Authorization: Bearer <key>, or X-API-Key: <key>")
        digest = hash_of(key).encode()
        owner = ""
        # All hashes are compared, so that the time does not tell which one matches.
        for name, known in self._hashes.items():
            if hmac.compare_digest(digest, known):
                owner = name
        if not owner:
            raise Unauthenticated("the API key is unknown")
        return owner

    def _read(self) -> None:
        self._checked_at = time.monotonic()
        try:
            stamp = self._path.stat().st_mtime_ns
            if stamp == self._stamp:
                return
            lines = self._path.read_text("utf8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise StartError(f"{self._path} (apiKeysFile) cannot be read: {error}") from None
        hashes = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line.strip())
            if match is None:
                # The message does not quote the line, which may hold a key by mistake.
                raise StartError(
                    f"{self._path}, line {number}: expected name:hash, as `cluster-serving-http hash-key` writes it"
                )
            hashes[match[1]] = match[2].encode()
        self._hashes, self._stamp = hashes, stamp


def hash_of(key: str) -> str:
    """Return the SHA-256 of a key. Keys are long and random, so a slow hash would add no protection."""
    return hashlib.sha256(key.encode("utf8", "surrogateescape")).hexdigest()


def new_key(name: str) -> tuple[str, str]:
    """Make a key for a user. Return the key, and its line for the file."""
    key = secrets.token_urlsafe(32)
    line = f"{name}:{hash_of(key)}"
    if _LINE.fullmatch(line) is None:
        raise StartError("a key's name has up to 64 letters, digits and the characters _ . @ -")
    return key, line
