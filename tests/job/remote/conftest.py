import hashlib
import io
import tarfile
import zipfile

import numpy as np
import pytest

from cluster_serving.client import InputQueue
from tests.support.fixtures.web_server import WebServer


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CLUSTER_SERVING_CACHE", str(folder))
    return folder


@pytest.fixture
def versions(cache):
    """Lists the complete versions in the cache, and whatever else is beside them."""
    return lambda: sorted(cache.glob("*/*"))


@pytest.fixture
def ask(redis_server):
    """Returns the answer of a model to the number 1."""

    def ask(model):
        with InputQueue(port=redis_server.port, name=model) as queue:
            return float(queue.predict({"x": np.float32(1)}, timeout=60))

    return ask


@pytest.fixture
def site(tmp_path):
    """The folder of the web server."""
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


@pytest.fixture
def server(site):
    server = WebServer(site)
    yield server
    server.stop()


@pytest.fixture
def pack():
    """Writes an archive of files by name; returns its SHA-256."""

    def pack(path, files):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, content in files.items():
                    archive.writestr(name, content)
        else:
            with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as archive:
                for name, content in files.items():
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
        return hashlib.sha256(path.read_bytes()).hexdigest()

    return pack
