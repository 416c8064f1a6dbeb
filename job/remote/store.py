"""A store of models, through fsspec: what is at an address, and downloads of it."""

import errno
import hashlib
import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from cluster_serving.job.remote.hadoop import DEFAULT_PORT, namenodes
from cluster_serving.job.remote.url import ModelUrl
from cluster_serving.protocol.errors import EngineMissing, ModelError

T = TypeVar("T")

CONNECT_S, READ_S = 10, 60
"""Seconds that a store may take to accept a connection, and to send the next bytes."""

# Scheme → extra of the distribution that installs its packages; "remote" for others.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs"}
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role of the machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or a service account of the machine",
    "hdfs": "HADOOP_CONF_DIR and HADOOP_USER_NAME",
    "webhdfs": "HADOOP_USER_NAME",
    "https": "NETRC with the path of a netrc file",
    "file": "permissions of the files",
}
# Attributes of a file that change with its content, by the names that the file systems of fsspec have for them.
_VERSIONS = frozenset(
    {"etag", "md5hash", "crc32c", "generation", "content-md5", "digest"}
    | {"mtime", "lastmodified", "last-modified", "modificationtime"}
)
_DENIED, _MISSING = frozenset({401, 403}), frozenset({404, 410})
# Raised by the libraries of the stores, which are not imported for their names.
_NO_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"})
_HASHED_BYTES = 1 << 20
_WEB = ("https", "http")
# Stores without folders, which list all files below an address at once.
_FLAT = ("s3", "s3a", "gs")
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class Unreachable(ModelError):
    """A store did not answer, or not to the end; another attempt may succeed."""


class Denied(ModelError):
    """A store refuses this process, which may lack credentials."""


class RemoteFile(NamedTuple):
    """A file in a store.

    Attributes:
        path: Path in the store.
        size: Bytes, or None if the store does not tell.
        version: Text that changes with the content.
        md5: MD5 of the content in base64, or empty if the store does not tell.
    """

    path: str
    size: int | None
    version: str
    md5: str


class Store:
    """The store of a model.

    Raises:
        EngineMissing: If a package that the store needs is not installed.
        ModelError: If the store cannot be used.
    """

    def __init__(self, url: ModelUrl) -> None:
        self._url = url
        self._fs, self._path = self._call(self._connect)

    def files(self) -> dict[str, RemoteFile]:
        """Return the files at the address, by path relative to the folder; of an archive its name alone.

        Raises:
            Unreachable: If the store does not answer.
            Denied: If the store needs other credentials.
            ModelError: If there is no such file or folder.
        """
        files = self._call(self._archive if self._url.archive else self._folder)
        if not files:
            raise ModelError(f"there is no {'archive' if self._url.archive else 'folder with files'} {self._url}")
        return files

    def download(self, file: RemoteFile, target: Path) -> None:
        """Copy a file of the store to a new local file, and check its size and, if known, its MD5.

        Raises:
            Unreachable: If the store does not send all of it, or something else.
            ModelError: If the local disk is full.
        """
        self._call(lambda: self._fs.get_file(file.path, str(target)))
        size = target.stat().st_size
        if file.size is not None and size != file.size:
            raise Unreachable(f"{self._url}: {size} instead of {file.size} bytes came of {target.name}")
        if file.md5 and file.md5 != (actual := b64encode(digest_of(target, "md5")).decode()):
            raise Unreachable(f"{self._url}: {target.name} came with the MD5 {actual} instead of {file.md5}")

    def _connect(self) -> tuple[Any, str]:
        import fsspec

        scheme = "webhdfs" if self._url.scheme == "hdfs" else self._url.scheme
        if scheme == "gs":
            # Otherwise gcsfs asks for the kind of bucket over gRPC, for a minute where only HTTP gets through.
            os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        try:
            kind = fsspec.get_filesystem_class(scheme)
        except ImportError:
            raise
        except Exception as error:
            # Such as a release of protobuf that does not go with a package; another attempt would not help.
            raise ImportError(f"{type(error).__name__}: {error}") from error
        # Neither files nor listings may come from an earlier use of the same store.
        options = {"skip_instance_cache": True, "use_listings_cache": False, **_options(self._url)}
        if scheme == "webhdfs":
            return self._hdfs(kind, options)
        # Not `url_to_fs`: it takes "::" for a chain of file systems.
        options |= kind._get_kwargs_from_urls(self._url.text)
        return kind(**options), str(kind._strip_protocol(self._url.text))

    def _hdfs(self, kind: Any, options: dict[str, Any]) -> tuple[Any, str]:
        # Over HTTP for hdfs:// as well: it needs neither Java nor native libraries of Hadoop.
        parts = urlsplit(self._url.text)
        user, _, service = parts.netloc.rpartition("@")
        nodes = namenodes(service) if self._url.scheme == "hdfs" else [service]
        failures: list[Exception] = []
        for node in nodes:
            host, _, port = node.partition(":")
            fs = kind(host=host, port=int(port or DEFAULT_PORT), **(options | ({"user": user} if user else {})))
            _bound(fs.session)
            try:
                # One that stands by answers with an error.
                fs.info("/")
            except Exception as error:
                failures.append(error)
            else:
                return fs, parts.path
        # Of two NameNodes that are no use, the one that does not stand by tells the reason.
        raise next((error for error in failures if "standby" not in str(error)), failures[0])

    def _archive(self) -> dict[str, RemoteFile]:
        info = self._fs.info(self._path)
        return {} if info["type"] == "directory" else {PurePosixPath(self._path).name: _file(self._path, info)}

    def _folder(self) -> dict[str, RemoteFile]:
        is_flat = self._url.scheme in _FLAT
        found = self._fs.find(self._path, detail=True) if is_flat else dict(self._walk(self._path))
        base = self._path.rstrip("/") + "/"
        names = {path: path.removeprefix(base) for path in found if path.startswith(base)}
        # Not the empty objects that tools make for folders.
        files = {
            name: _file(path, found[path])
            for path, name in names.items()
            if found[path]["type"] == "file" and name and not name.endswith("/")
        }
        # Of S3, the part of a key behind the folder may begin with a slash, too.
        if unsafe := next((name for name in files if name[0] == "/" or ".." in PurePosixPath(name).parts), None):
            raise ModelError(f"{self._url} holds {unsafe!r}, which lies outside of the folder")
        return files

    def _walk(self, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
        # fsspec's own walk leaves out a subfolder that cannot be listed, and the rest would count as the model.
        for info in self._fs.ls(folder, detail=True):
            if info["type"] == "directory":
                yield from self._walk(info["name"])
            else:
                yield info["name"], info

    def _call(self, action: Callable[[], T]) -> T:
        """Do something with the store; an error that the libraries raise becomes one of ours.

        The cause is left out, since its text may hold credentials of the address.
        """
        try:
            return action()
        except ModelError:
            raise
        except Exception as error:
            raised = self._error(error)
        raise raised

    def _error(self, error: Exception) -> ModelError:
        url, scheme = self._url, self._url.scheme
        causes = list(_chain(error))
        text = url.scrub(f"{type(causes[-1]).__name__}: {causes[-1]}".rstrip(": "))
        statuses = set(map(_status, causes))
        names = {type(cause).__name__ for cause in causes}
        if any(isinstance(cause, ImportError) for cause in causes):
            extra = _EXTRAS.get(scheme, "remote")
            return EngineMissing(
                f"the model {url} needs a package that is not installed ({text}): "
                f"run pip install 'cluster-serving[{extra}]'"
            )
        if any(getattr(cause, "errno", None) in _NO_SPACE for cause in causes):
            return ModelError(f"the model {url} does not fit on the disk: {text}")
        if isinstance(error, ValueError) and scheme == "hdfs":
            return ModelError(f"the model {url} cannot be looked for: {text}")
        if isinstance(error, PermissionError) or statuses & _DENIED or names & _NO_CREDENTIALS:
            needed = _CREDENTIALS.get({"s3a": "s3", "http": "https"}.get(scheme, scheme))
            return Denied(f"the store refuses {url} ({text}); set credentials where the TaskManagers run: {needed}")
        # Over HTTP, fsspec raises this error for every cause.
        is_missing = isinstance(error, FileNotFoundError) and (scheme not in _WEB or len(causes) == 1)
        if statuses & _MISSING or is_missing:
            return ModelError(f"there is no model at {url} ({text}); set modelPath to an address that exists")
        return Unreachable(f"the store of {url} does not answer ({text})")


def _options(url: ModelUrl) -> dict[str, Any]:
    """Return what a file system is told beside the address: bounds of its waits, and credentials."""
    scheme = url.scheme
    if scheme in _WEB:
        from aiohttp import ClientTimeout

        timeout = ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
        # trust_env: proxies and netrc of the environment. identity: the size is that of the file, not of a coding.
        return {
            "client_kwargs": {"timeout": timeout, "trust_env": True},
            "headers": {"Accept-Encoding": "identity"},
            # What is escaped stays as it is: a signature would not fit another spelling.
            "encoded": "%" in url.text,
        }
    if scheme in ("s3", "s3a"):
        # `fetch` tries again itself.
        bounds = {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "retries": {"max_attempts": 1}}
        return {"config_kwargs": bounds}
    if scheme in ("hdfs", "webhdfs") and (user := os.environ.get("HADOOP_USER_NAME")):
        return {"user": user}
    return {}


def _bound(session: Any) -> None:
    """Bound the waits of a session of `requests`, which has no limit of its own."""
    from requests.adapters import HTTPAdapter

    class Bounded(HTTPAdapter):
        def send(self, request: Any, *arguments: Any, **options: Any) -> Any:
            return super().send(request, *arguments, **(options | {"timeout": (CONNECT_S, READ_S)}))

    for scheme in ("http://", "https://"):
        session.mount(scheme, Bounded())


def _file(path: str, info: dict[str, Any]) -> RemoteFile:
    versions = {key.lower(): str(value) for key, value in info.items() if key.lower() in _VERSIONS and value}
    size = info.get("size")
    # Of Google Cloud Storage, and of some web servers. The ETag of S3 is an MD5 in some of its buckets only.
    md5 = info.get("md5Hash") or info.get("Content-MD5") or ""
    return RemoteFile(path, None if size is None else int(size), json.dumps(versions, sort_keys=True), md5)


def digest_of(path: Path, algorithm: str) -> bytes:
    """Return the digest of a file, by an algorithm of `hashlib`."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_HASHED_BYTES):
            digest.update(block)
    return digest.digest()


def _status(error: BaseException) -> int:
    """Return the HTTP status that an error of aiohttp, requests or gcsfs has, or 0."""
    for holder, name in ((error, "status"), (getattr(error, "response", None), "status_code"), (error, "code")):
        status = getattr(holder, name, None)
        if status is not None and str(status).isdecimal():
            return int(status)
    return 0


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
