"""API keys: a file of their hashes, a line `name:hash` for each."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
from pathlib import Path

from cluster_serving.frontend.errors import Unauthenticated

log = logging.getLogger(__name__)

_LINE = re.compile(r"([A-Za-z0-9_.@-]{1,64}):([0-9a-f]{64})")
_RECHECK = 5.0


class KeysError(Exception):
    """The file of keys cannot be used; the message names the line."""


class Keys:
    """The keys of a file; a change of it counts within seconds, once it can be read.

    Args:
        path: The file.

    Raises:
        KeysError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hashes: dict[str, bytes] = {}
        self._stamp = 0
        self._checked_at = 0.0
        self._read()

    def owner(self, key: str) -> str:
        """Name of whom a key was given to.

        Raises:
            Unauthenticated: The key is unknown, or missing (empty).
        """
        if time.monotonic() - self._checked_at > _RECHECK:
            try:
                self._read()
            except KeysError as error:
                # Somebody may just be writing it, and requests with good keys are not to blame.
                log.warning("the API keys that were read before stay in force: %s", error)
        if not key:
            raise Unauthenticated("an API key is needed: Authorization: Bearer <key>, or X-API-Key: <key>")
        digest = hash_of(key).encode()
        found = ""
        # All of them, so that the time says nothing about which one fits.
        for name, known in self._hashes.items():
            if hmac.compare_digest(digest, known):
                found = name
        if not found:
            raise Unauthenticated("the API key is unknown")
        return found

    def _read(self) -> None:
        self._checked_at = time.monotonic()
        try:
            stamp = self._path.stat().st_mtime_ns
            if stamp == self._stamp:
                return
            lines = self._path.read_text("utf8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise KeysError(f"{self._path} (apiKeysFile) cannot be read: {error}") from None
        hashes = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line.strip())
            if match is None:
                # Not the line itself: somebody may have written a key into it.
                raise KeysError(
                    f"{self._path}, line {number}: expected name:hash, as `cluster-serving-http hash-key` writes it"
                )
            hashes[match[1]] = match[2].encode()
        self._hashes, self._stamp = hashes, stamp


def hash_of(key: str) -> str:
    """SHA-256 of a key: it is random and long, so a slow hash would protect nothing more."""
    return hashlib.sha256(key.encode("utf8", "surrogateescape")).hexdigest()


def new_key(name: str) -> tuple[str, str]:
    """Make a key.

    Args:
        name: Whom it is for.

    Returns:
        The key, and its line for the file.

    Raises:
        KeysError: The name cannot be in the file.
    """
    key = secrets.token_urlsafe(32)
    line = f"{name}:{hash_of(key)}"
    if _LINE.fullmatch(line) is None:
        raise KeysError("a key's name has up to 64 letters, digits and the characters _ . @ -")
    return key, line
