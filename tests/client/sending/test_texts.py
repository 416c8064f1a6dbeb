"""Plain texts: for an input of texts they are texts, whatever their characters."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, InputQueue
from cluster_serving.protocol.errors import InvalidInput, RedisUnavailable
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport, TensorSpec


@pytest.fixture
def model(db, job):
    """Reports a model with these inputs."""

    def report(*inputs):
        specs = tuple(TensorSpec(name, dtype, (None, *shape)) for name, dtype, shape in inputs)
        db.hset(JobKeys(job).slots(), "0", SlotReport("s", "ready", engine="Echo", inputs=specs).to_json())

    return report


@pytest.fixture
def file(tmp_path):
    """A file that a user of the application names."""
    path = tmp_path / "passwd"
    path.write_text("root:x:0:0")
    return str(path)


@pytest.mark.usefixtures("echo")
def test_a_text_for_a_model_of_texts_is_no_path(redis_server, job, model, file):
    model(("city", "str", ()))
    with InputQueue(url=redis_server.url, name=job) as queue:
        assert queue.predict({"city": file})["city"].item() == file
        assert queue.predict(file)["t"].item() == file
        assert [result["city"].item() for result in queue.predict_many([{"city": file}] * 2)] == [file] * 2

    async def ask():
        async with AsyncInputQueue(url=redis_server.url, name=job) as queue:
            return await queue.predict({"city": file})

    assert asyncio.run(ask())["city"].item() == file


@pytest.mark.usefixtures("echo")
def test_of_several_inputs_each_is_what_the_model_takes(redis_server, job, model, file, tmp_path):
    model(("question", "str", ()), ("photo", "uint8", (None, None, 3)))
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"\xff\xd8\xff" + bytes(9))
    with InputQueue(url=redis_server.url, name=job) as queue:
        answer = queue.predict({"question": file, "photo": str(photo)})
        assert answer["question"].item() == file
        with pytest.raises(InvalidInput, match="'photo' is the text"):
            queue.predict({"question": file, "photo": file})


def test_a_file_is_not_sent_before_a_slot_has_told_what_the_model_takes(redis_server, db, job, file):
    with InputQueue(url=redis_server.url, name=job) as queue, pytest.raises(InvalidInput, match="not an image"):
        queue.enqueue("r", city=file)
    assert not db.exists(job)


def test_a_hash_of_the_slots_that_is_none_tells_nothing(redis_server, db, job, file):
    db.set(JobKeys(job).slots(), "not a hash")
    with InputQueue(url=redis_server.url, name=job) as queue, pytest.raises(InvalidInput, match="not an image"):
        queue.predict(file)


def test_without_redis_texts_of_predict_many_fail_with_the_clients_own_error(file):
    with InputQueue(port=1, name="j") as queue:
        (result,) = queue.predict_many([file], timeout=1)
    assert isinstance(result.error, RedisUnavailable)


def test_a_redis_that_was_never_reached_is_not_waited_for():
    """An attempt that sends no command about texts must not count as having reached it."""

    async def ask():
        async with AsyncInputQueue(port=1, name="j", reconnect=600) as queue:
            with pytest.raises(RedisUnavailable):
                await queue.predict({"x": np.ones(1)}, timeout=1)
            with pytest.raises(RedisUnavailable):
                await asyncio.wait_for(queue.enqueue("a", x=np.ones(1)), 60)

    asyncio.run(ask())
