"""Large inputs in files instead of Redis: the side of the clients, on a real Redis."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, InputQueue, QueueFull, RedisUnavailable, ResultTimeout
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.limits import publish_limits
from cluster_serving.frontend.models.deferred import DeferredDispatcher
from cluster_serving.protocol.entry import parse_entry
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge, ServingError
from cluster_serving.protocol.inputs import Image
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.payloads import base, files
from cluster_serving.protocol.redis.connection import connect_async
from tests.support.fixtures.waiting import wait_until

LARGE = np.arange(files.MIN_BYTES // 4, dtype="f4")


@pytest.fixture
def shared(db, job, folder):
    """A job that has said where its folder is."""
    publish_limits(db, RedisOptions("", job, payload_folder=str(folder)))
    return job


@pytest.fixture
def requests(redis_server, job):
    with InputQueue(port=redis_server.port, name=job) as queue:
        yield queue


def entry(db, job, index=-1):
    return parse_entry(*db.xrange(job)[index])


def test_a_large_input_goes_into_a_file_and_its_name_through_redis(db, shared, folder, requests):
    requests.enqueue("a", x=LARGE, y=np.float32(1))
    (file,) = folder.iterdir()
    found = entry(db, shared)
    assert (found.file.decode(), found.data) == (file.name, b"")
    assert file.stat().st_mode & 0o777 == 0o640
    with InputQueue(port=requests.port, name="plain") as plain:
        plain.enqueue("a", x=LARGE, y=np.float32(1))
    assert file.read_bytes() == entry(db, "plain").data
    db.delete("plain")


@pytest.mark.parametrize("value", [LARGE[1:], np.zeros(3), Image(b"x" * (files.MIN_BYTES - 1))])
def test_a_small_input_goes_through_redis(db, shared, folder, requests, value):
    requests.enqueue("a", x=value)
    assert not entry(db, shared).file
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "value",
    [Image(b"\xff" * files.MIN_BYTES), LARGE.reshape(2, -1).T, LARGE.astype("c8"), np.array(["x" * 10] * 30_000)],
)
def test_every_kind_of_input_arrives_as_it_would_through_redis(db, shared, folder, requests, value):
    requests.enqueue("a", x=value)
    found = entry(db, shared)
    data = (folder / found.file.decode()).read_bytes() if found.file else found.data
    db.delete(JobKeys(shared).limits)
    with InputQueue(port=requests.port, name=shared) as plain:
        plain.enqueue("b", x=value)
    assert entry(db, shared).data == data


@pytest.mark.parametrize("name", ["missing", "elsewhere"])
def test_who_does_not_find_the_folder_sends_through_redis(db, job, tmp_path, requests, name):
    if name == "elsewhere":
        (tmp_path / name).mkdir()
    publish_limits(db, RedisOptions("", job, payload_folder=str(tmp_path / name)))
    requests.enqueue("a", x=LARGE)
    assert entry(db, job).data
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_a_folder_that_is_gone_or_full_costs_no_request(db, shared, folder, requests, monkeypatch):
    requests.enqueue("a", x=LARGE)
    full = os.statvfs(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda path: os.statvfs_result((*full[:4], 0, *full[5:])))
        requests.enqueue("b", x=LARGE)
    assert entry(db, shared).data
    assert len(list(folder.iterdir())) == 1
    (folder / entry(db, shared, 0).file.decode()).unlink()
    folder.rmdir()
    requests.enqueue("c", x=LARGE)
    assert entry(db, shared).data


def test_what_is_not_queued_leaves_no_file(db, shared, folder, requests):
    publish_limits(db, RedisOptions("", shared, payload_folder=str(folder), max_queue_length=1))
    requests.enqueue("a", x=np.zeros(1))
    with pytest.raises(QueueFull):
        requests.enqueue("b", x=LARGE)
    with pytest.raises(QueueFull):
        requests.predict({"x": LARGE})

    async def run():
        async with AsyncInputQueue(port=requests.port, name=shared) as queue:
            with pytest.raises(QueueFull):
                await queue.enqueue("b", x=LARGE)
            with pytest.raises(QueueFull):
                await queue.predict({"x": LARGE})

    asyncio.run(run())
    assert not list(folder.iterdir())


def test_who_gives_up_waiting_for_room_leaves_no_file(db, shared, folder, requests, monkeypatch):
    # Given up during a pause: the effect of a call that is interrupted would not be known.
    monkeypatch.setattr("cluster_serving.client.enqueue._MIN_PAUSE", 60.0)
    monkeypatch.setattr("cluster_serving.client.enqueue._MAX_PAUSE", 60.0)
    publish_limits(db, RedisOptions("", shared, payload_folder=str(folder), max_queue_length=1))
    requests.enqueue("a", x=np.zeros(1))

    async def run():
        async with AsyncInputQueue(port=requests.port, name=shared) as queue:
            waiting = asyncio.create_task(queue.enqueue("b", x=LARGE, block=True))
            while not list(folder.iterdir()):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(run())
    assert not list(folder.iterdir())
    assert db.xlen(shared) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to others")
def test_the_job_can_read_what_root_writes_and_others_only_with_a_shared_group(folder):
    # Others may not even look into what pytest makes.
    folder = Path(tempfile.mkdtemp(), folder.name)
    folder.mkdir()
    folder.parent.chmod(0o755)
    os.chown(folder, 65534, 65534)
    found = base.PayloadFolder.local(os.fsencode(folder))
    status = (folder / files.write(found, [b"data"])).stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (65534, 65534, 0o640)
    look = "import os, sys; from cluster_serving.protocol.payloads.base import PayloadFolder as F; "
    look += "os.setuid(12345); print(F.local(os.fsencode(sys.argv[1])) is not None)"
    for mode, usable in ((0o777, "False"), (0o2777, "True")):
        folder.chmod(mode)
        run = subprocess.run([sys.executable, "-c", look, str(folder)], capture_output=True, text=True)
        assert run.stdout.strip() == usable, run.stderr
    shutil.rmtree(folder.parent)


def test_what_is_withdrawn_leaves_no_file(db, shared, folder, requests):
    requests.enqueue("a", x=LARGE)
    assert requests.cancel("a")
    requests.enqueue("b", x=LARGE)
    with InputQueue(port=requests.port, name=shared) as other:
        # It has to look for the request.
        assert other.cancel("b")
    assert not list(folder.iterdir())

    async def run():
        async with AsyncInputQueue(port=requests.port, name=shared) as queue:
            with pytest.raises(ResultTimeout):
                await queue.predict({"x": LARGE}, timeout=0.3)

    asyncio.run(run())
    wait_until(lambda: not list(folder.iterdir()))
    assert not db.xlen(shared)


def test_asyncio_clients_and_front_ends_use_it_too(db, shared, folder, requests):
    async def run():
        async with AsyncInputQueue(port=requests.port, name=shared) as queue:
            await queue.enqueue("a", x=LARGE)
        dispatcher = DeferredDispatcher(connect_async("localhost", requests.port, None))
        await dispatcher.submit(shared, "b", {"x": LARGE})
        await dispatcher.close()

    asyncio.run(run())
    assert {entry(db, shared, index).file.decode() for index in (0, 1)} == {file.name for file in folder.iterdir()}


def test_while_redis_is_away_files_do_not_pile_up(redis_server, shared, folder, db):
    with InputQueue(port=redis_server.port, name=shared, reconnect=0) as queue:
        queue.enqueue("a", x=LARGE)
        redis_server.stop()
        try:
            for _ in range(5):
                with pytest.raises(RedisUnavailable):
                    queue.enqueue("b", x=LARGE)
        finally:
            redis_server.start()
        # The first of them might have been queued.
        assert len(list(folder.iterdir())) == 2
        queue.enqueue("c", x=LARGE)
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("name", [b"", b"../" + b"a" * 29, b"a" * 31, b"A" * 32, b"/etc/passwd", b"a" * 32 + b"\n"])
def test_a_name_leads_nowhere_else(folder, name):
    with pytest.raises(InvalidInput, match="'data_file' is .*; expected 32 hexadecimal digits"):
        base.PayloadFolder(str(folder)).locate(name)


def test_only_plain_files_of_a_fair_size_are_read(folder):
    target = folder / "target"
    target.write_bytes(b"x" * 10)
    path = str(folder / ("a" * 32)).encode()
    with pytest.raises(FileNotFoundError):
        files.read(path, 10)
    os.symlink(target, path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        files.read(path, 10)
    os.unlink(path)
    os.mkfifo(path)
    with pytest.raises(InvalidInput, match="not a plain file"):
        files.read(path, 10)
    os.unlink(path)
    os.mkdir(path)
    with pytest.raises(InvalidInput, match="not a plain file"):
        files.read(path, 10)
    assert files.read(os.fsencode(target), 10) == b"x" * 10
    with pytest.raises(RequestTooLarge, match=r"10 bytes, more than maxRequestBytes \(9\)"):
        files.read(os.fsencode(target), 9)


def test_a_file_is_removed_once(folder):
    target = folder / ("a" * 32)
    target.touch()
    base.discard(os.fsencode(folder), target.name.encode())
    assert not target.exists()
    base.discard(os.fsencode(folder), target.name.encode())
    base.discard(b"/etc", b"passwd")
    assert os.path.exists("/etc/passwd")


def test_limits_that_cannot_be_read_are_an_error_of_redis(db, job, requests):
    db.set(JobKeys(job).limits, "not a hash")
    with pytest.raises(ServingError, match="WRONGTYPE.*; another program has a key .*doctor names it"):
        requests.enqueue("a", x=LARGE)
    db.delete(JobKeys(job).limits)
