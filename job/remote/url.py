"""Addresses of models in a store, such as `s3://bucket/model` and `https://host/model.zip`."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

SCHEMES = ("s3", "s3a", "gs", "hdfs", "webhdfs", "https", "http", "file")
"""Schemes of the stores that a model is fetched from."""

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
"""Endings of addresses that name an archive; others name a folder."""

_IN_ARCHIVE = re.compile(rf"(.+({'|'.join(map(re.escape, ARCHIVES))}))!/(.*)", re.IGNORECASE)
_WEB = ("https", "http")
_USER = re.compile(r"//[^/\s]*@")
_QUERY = re.compile(r"\?[^\s'\")]*")
_SHA256 = re.compile(r"sha256=([0-9a-f]{64})", re.IGNORECASE)


def is_url(path: str) -> bool:
    """Return True if the path of a model is an address in a store."""
    return "://" in path


def is_archive(path: str) -> bool:
    """Return True if a path or an address names an archive, or a folder in one."""
    return path.lower().endswith(ARCHIVES) or bool(_IN_ARCHIVE.fullmatch(path))


def absolute(path: str) -> str:
    """Return an address as it is, and a local path, or a pattern of such, from the root."""
    return path if is_url(path) else str(Path(path).absolute())


@dataclass(frozen=True, slots=True)
class ModelUrl:
    """A checked address of a model.

    A model in a folder of an archive has the address of the archive, `!/` and the folder, as in Java.

    Attributes:
        text: The address of the folder or archive, without `#sha256=...`. It may hold a password; `str()` does not.
        scheme: One of `SCHEMES`, in lower case.
        archive: The one of `ARCHIVES` that the address ends with, or empty for a folder.
        sha256: SHA-256 of the archive in hexadecimal digits, or empty if the address does not tell it.
        inside: Path of the folder in the archive; empty for its top.
    """

    text: str
    scheme: str
    archive: str
    sha256: str = ""
    inside: str = ""

    @classmethod
    def parse(cls, text: str) -> "ModelUrl":
        """Check an address.

        Raises:
            ValueError: If no model can be fetched from there. The message does not quote the address.
        """
        address, mark, fragment = text.strip().partition("#")
        place, question, query = address.partition("?")
        inside = ""
        if found := _IN_ARCHIVE.fullmatch(place):
            address, inside = f"{found[1]}{question}{query}", found[3].strip("/")
        parts = urlsplit(address)
        scheme = parts.scheme.lower()
        if scheme not in SCHEMES:
            raise ValueError(f"the scheme is not one of {', '.join(SCHEMES)}")
        sha256 = _SHA256.fullmatch(fragment)
        if mark and not sha256:
            raise ValueError("behind # comes something else than sha256= and 64 hexadecimal digits")
        archive = next((ending for ending in ARCHIVES if parts.path.lower().endswith(ending)), "")
        if mark and not archive:
            raise ValueError("a folder has no SHA-256")
        user, at, host = parts.netloc.rpartition("@")
        if scheme in _WEB:
            if not parts.hostname or parts.port == 0:
                raise ValueError("there is no host")
            if not archive:
                raise ValueError(f"over {scheme} an archive is fetched, which ends with {', '.join(ARCHIVES)}")
        elif parts.query:
            raise ValueError(f"an address of {scheme} has no part behind a question mark")
        elif at and (":" in user or scheme not in ("hdfs", "webhdfs")):
            raise ValueError(f"{scheme} takes credentials from the environment")
        elif scheme == "file" and host not in ("", "localhost"):
            raise ValueError("file:// names a path of this machine, with three slashes")
        elif scheme in ("s3", "s3a", "gs", "webhdfs") and not host:
            raise ValueError("there is no bucket or host")
        if ".." in inside.split("/"):
            raise ValueError("a folder in an archive has no ..")
        if not parts.path.strip("/") and scheme not in ("s3", "s3a", "gs"):
            raise ValueError("there is no path")
        return cls(address, scheme, archive, sha256[1].lower() if sha256 else "", inside)

    def below(self, place: str) -> str:
        """Return the address of a folder in this one, or in this archive."""
        if not self.archive:
            return f"{self.text.rstrip('/')}/{place}"
        path, question, query = self.text.partition("?")
        inside = "/".join(filter(None, (self.inside, place)))
        return f"{path}!/{inside}{question}{query}{self.sha256 and f'#sha256={self.sha256}'}"

    def path_to(self, other: "ModelUrl") -> str:
        """Return the path of a folder in this one, or in this archive, from here; empty if it is elsewhere."""
        own, there = (f"{url.text.rstrip('/')}{url.archive and '!/'}{url.inside}".rstrip("/") for url in (self, other))
        return there.removeprefix(own + "/") if there.startswith(own + "/") else ""

    @property
    def key(self) -> str:
        """Name of the address in the cache; user and password do not matter."""
        before, _, rest = self.text.partition("://")
        host, slash, path = rest.partition("/")
        return hashlib.sha256(f"{before}://{host.rpartition('@')[2]}{slash}{path}".encode()).hexdigest()[:16]

    def scrub(self, text: str) -> str:
        """Return a text with `***` in place of what the address must not tell."""
        text = _USER.sub("//***@", text.replace(self.text, str(self)))
        text = _QUERY.sub("?***", text) if self.scheme in _WEB else text
        password = urlsplit(self.text).password
        return text.replace(password, "***") if password else text

    def __str__(self) -> str:
        """Return the address without user, password and query, which may be a signature."""
        address, mark, _ = self.text.partition("?")
        scheme, separator, rest = address.partition("://")
        if self.scheme in _WEB:
            user, at, rest = rest.rpartition("@")
            rest = f"***@{rest}" if user and at else rest
        return f"{scheme}{separator}{rest}{self.inside and f'!/{self.inside}'}{'?***' if mark else ''}"
