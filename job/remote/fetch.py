"""Fetching of a model into the local cache: once per machine and version, checked, and never in part."""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from cluster_serving.job.remote.cache import VARIABLE, Cache
from cluster_serving.job.remote.store import RemoteFile, Store, Unreachable, digest_of
from cluster_serving.job.remote.url import ModelUrl
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.host import archive

TIMEOUT_S = 60.0
"""Seconds after the first failure in which another attempt may begin."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0

log = logging.getLogger(__name__)


def parse(text: str) -> ModelUrl:
    """Check the address of a model.

    Raises:
        ModelError: If it is not one that a model can be fetched from.
    """
    try:
        return ModelUrl.parse(text)
    except ValueError as error:
        problem = str(error)
    # Without the address, which may hold a password in an unexpected place.
    raise ModelError(f"modelPath is an address that no model can be fetched from: {problem}")


def fetch(text: str, timeout: float = TIMEOUT_S) -> Path:
    """Return the local folder of the model at an address, after fetching it if this version is not in the cache.

    Several slots of a machine fetch once. A store that does not answer is asked again for `timeout` seconds.

    Raises:
        EngineMissing: If a package that the store needs is not installed.
        ModelError: If the model cannot be fetched, is not what the address says, or changes all the time.
    """
    url = parse(text)
    cache = Cache.open()
    with cache.locked(url.key):
        version = _persist(url, cache, timeout)
    if not url.archive:
        return version
    # With a single model left, its folder is the only one: it counts as the top.
    places = [top / url.inside for top in (archive.root(version), version)]
    if found := next(filter(Path.is_dir, places), None):
        return found
    raise ModelError(f"the archive of {url} has no folder {url.inside}; name one that it has behind !/ in modelPath")


def content_of(url: ModelUrl, files: Mapping[str, RemoteFile]) -> str:
    """Return an identifier of the content of files: equal as long as sizes, and versions of the store, are."""
    described = sorted((name, file.size, file.version) for name, file in files.items())
    return hashlib.sha256((url.sha256 or json.dumps(described)).encode()).hexdigest()[:32]


def _persist(url: ModelUrl, cache: Cache, timeout: float) -> Path:
    deadline = float("inf")
    for attempt in count():
        try:
            return _once(url, cache)
        except Unreachable as error:
            failure = error
        deadline = min(deadline, time.monotonic() + timeout)
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt)
        if time.monotonic() + pause > deadline:
            break
        log.warning("%s; trying again in %.1f s", failure, pause)
        time.sleep(pause)
    raise ModelError(
        f"{failure}, tried {attempt + 1} times; check modelPath, and the network and proxies (HTTPS_PROXY) where the "
        "TaskManagers run"
    )


def _once(url: ModelUrl, cache: Cache) -> Path:
    # The address itself may tell the content: then a cached version does without the store.
    if url.sha256 and (found := cache.find(url.key, content_of(url, {}))):
        return found
    store = Store(url)
    files = store.files()
    content = content_of(url, files)
    if found := cache.find(url.key, content):
        return found
    size = _size(url, files, cache)
    log.info("fetching the model %s: %d files, %.1f MiB", url, len(files), size / (1 << 20))
    with cache.begin(url.key) as partial:
        fetched = partial / "fetched"
        for name, file in files.items():
            target = fetched / name
            target.parent.mkdir(parents=True, exist_ok=True)
            store.download(file, target)
        if url.archive:
            (packed,) = fetched.iterdir()
            if url.sha256 and (actual := digest_of(packed, "sha256").hex()) != url.sha256:
                raise ModelError(f"{url} is not what was asked for: its SHA-256 is {actual}, not {url.sha256}")
            fetched = partial / "unpacked"
            archive.unpack(packed, url.archive, fetched, str(url))
        if not url.sha256 and content_of(url, store.files()) != content:
            raise Unreachable(f"the model {url} changed while it was fetched")
        return cache.commit(fetched, url.key, content)


def _size(url: ModelUrl, files: Mapping[str, RemoteFile], cache: Cache) -> int:
    """Return the bytes of files that are known to fit on the disk."""
    if len(files) > archive.MAX_ENTRIES:
        raise ModelError(f"{url} holds {len(files)} files; at most {archive.MAX_ENTRIES} are fetched")
    sizes = [file.size for file in files.values()]
    if None in sizes and not url.sha256:
        raise ModelError(
            f"the server does not give the size of {url}, so an incomplete copy would go unnoticed; add "
            "#sha256=<hexadecimal digits> to modelPath"
        )
    size = sum(size or 0 for size in sizes)
    if size > (free := shutil.disk_usage(cache.folder).free):
        raise ModelError(
            f"the model {url} has {size >> 20} MiB, and {free >> 20} MiB are free in {cache.folder}; set {VARIABLE} "
            "to a folder with more space"
        )
    return size
