"""Program that uses everything in the light client once; `pythons` runs it on several Pythons.

Arguments are the URL of a Redis and a job that echoes the inputs of its requests.
"""

import asyncio
import importlib
import pkgutil
import platform
import sys
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import redis

import cluster_serving.client
import cluster_serving.client.original
import cluster_serving.protocol
from cluster_serving.client import (
    AsyncInputQueue,
    AsyncOutputQueue,
    Image,
    InputQueue,
    InvalidInput,
    OutputQueue,
    QueueFull,
    RedisUnavailable,
    RequestCancelled,
    ResultTimeout,
    SparseTensor,
)
from cluster_serving.client.encryption import RecordKey, encrypt
from cluster_serving.protocol import tensors
from cluster_serving.protocol.encryption.images import decrypt
from cluster_serving.protocol.keys import MAX_QUEUE_LENGTH, JobKeys
from cluster_serving.protocol.original import arrow, json

UNSERVED = "unserved"


def main():
    url, job = sys.argv[1:]
    for package in (cluster_serving.protocol, cluster_serving.client):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    check_encodings()
    check_queues(url, job)
    check_errors(url)
    asyncio.run(check_asyncio(url, job))
    check_original(url, job)
    versions = f"redis {redis.__version__}, numpy {np.__version__}, pyarrow {pa.__version__}"
    print(f"Python {platform.python_version()}: the light client works with {versions}")


def check_encodings():
    inputs = {
        "x": np.arange(6, dtype="f4").reshape(2, 3),
        "text": np.array(["a", "ü"], object),
        "image": Image(b"\xff\xd8"),
        "sparse": SparseTensor(np.array([[0, 1], [1, 2]]), np.ones(2, "f4"), (2, 3)),
    }
    for _ in range(2):
        columns, read = tensors.decode(tensors.encode(inputs))
    assert [column.kind for column in columns] == ["tensor", "string", "image", "sparse"]
    assert np.array_equal(read["x"], inputs["x"])
    assert read["text"].tolist() == ["a", "ü"]
    assert read["image"] == inputs["image"]
    assert read["sparse"].shape == (2, 3)
    for damaged in (b"", b"\xff\xff\xff\xff\x00\x00\x00\x01", tensors.encode(inputs)[:-40]):
        expect(InvalidInput, lambda damaged=damaged: tensors.decode(damaged))
    sent = arrow.decode_request(arrow.encode_request({"x": inputs["x"]}).encode())
    assert np.array_equal(sent["x"], inputs["x"])
    assert json.decode_request(b'{"instances": [{"x": [1, 2]}]}')["x"].tolist() == [1, 2]
    key = RecordKey("a secret", "and salt")
    assert decrypt(encrypt(b"image", key), key) == Image(b"image")


def check_queues(url, job):
    with InputQueue(name=job, url=url) as requests, OutputQueue(name=job, url=url) as results:
        requests.enqueue("a", x=np.arange(3, dtype="i2"), words=["b", "c"])
        first, second = results.query_and_delete("a", timeout=30).outputs.values()
        assert first.dtype == np.int16
        assert second.tolist() == ["b", "c"]
        assert results.query("a") is None
        assert requests.predict({"x": np.zeros((2, 2))}, timeout=30).shape == (2, 2)
        large = np.ones(1 << 20)
        assert np.array_equal(requests.predict(large, timeout=30), large)
        requests.enqueue("b:c", x=1.5)
        results.query("b:c", timeout=30)
        assert {uri: value.item() for uri, value in results.dequeue().items()} == {"b:c": 1.5}


def check_errors(url):
    with InputQueue(name=UNSERVED, url=url) as requests, OutputQueue(name=UNSERVED, url=url) as results:
        expect(InvalidInput, lambda: requests.enqueue("a", x=object()))
        expect(ResultTimeout, lambda: requests.predict(np.zeros(1), timeout=0.1))
        requests.enqueue("a", x=np.zeros(1))
        assert requests.cancel("a")
        assert not requests.cancel("a")
        expect(RequestCancelled, lambda: results.query_and_delete("a"))
        requests.db.hset(JobKeys(UNSERVED).limits, MAX_QUEUE_LENGTH, 0)
        expect(QueueFull, lambda: requests.enqueue("a", x=np.zeros(1), block=True, timeout=0.1))
        requests.db.delete(UNSERVED, JobKeys(UNSERVED).limits)
    with InputQueue(port=1) as unreachable:
        expect(RedisUnavailable, lambda: unreachable.enqueue("a", x=np.zeros(1)))


async def check_asyncio(url, job):
    async with AsyncInputQueue(name=job, url=url) as requests, AsyncOutputQueue(name=job, url=url) as results:
        outputs = await asyncio.gather(*(requests.predict(np.array([n]), timeout=30) for n in range(200)))
        assert [output.item() for output in outputs] == list(range(200))
        waiting = [asyncio.ensure_future(results.query_and_delete(f"r{n}", timeout=30)) for n in range(20)]
        await asyncio.sleep(0.2)
        await results.db.client_kill_filter(_type="pubsub")
        for number in range(20):
            await requests.enqueue(f"r{number}", x=np.array([number]))
        assert [output.item() for output in await asyncio.gather(*waiting)] == list(range(20))
        assert (await requests.predict(np.array([1]), timeout=30)).item() == 1
    async with AsyncInputQueue(name=UNSERVED, url=url) as requests:
        task = asyncio.ensure_future(requests.predict(np.zeros(1), timeout=30))
        while not await requests.db.xlen(UNSERVED):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        while await requests.db.xlen(UNSERVED):
            await asyncio.sleep(0.01)
        try:
            await requests.predict(np.zeros(1), timeout=0.1)
        except ResultTimeout:
            return
    raise AssertionError("no ResultTimeout")


def check_original(url, job):
    cluster_serving.client.original.install()
    from zoo.serving.client import InputQueue as OriginalInputQueue
    from zoo.serving.client import OutputQueue as OriginalOutputQueue

    port = str(urlsplit(url).port)
    requests, results = OriginalInputQueue(port=port, name=job), OriginalOutputQueue(port=port, name=job)
    assert requests.predict({"t": np.arange(3)}, timeout=30).tolist() == [0, 1, 2]
    assert results.query("missing") == "[]"
    for queue in (requests, requests.output_queue, results):
        queue.db.close()


def expect(error, action):
    try:
        action()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


if __name__ == "__main__":
    main()
