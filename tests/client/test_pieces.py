"""Answers in pieces: a handler that generates, a real Redis, and the clients."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from cluster_serving.client import (
    AsyncInputQueue,
    InferenceFailed,
    InferenceTimeout,
    InputQueue,
    InvalidInput,
    OutputQueue,
    QueueFull,
    RequestCancelled,
    RequestLost,
    Restarted,
    ResultTimeout,
    announcements,
)
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.pieces import PieceWriter
from cluster_serving.protocol.entry import parse_entry
from cluster_serving.protocol.keys import GROUP, JobKeys
from tests.support.fixtures.generating import generating
from tests.support.fixtures.waiting import wait_until

ENDLESS = """
    import time

    class Handler:
        inputs = {"pause": "float32"}

        def predict(self, batch):
            number = 0
            try:
                while True:
                    yield {"number": [number] * len(batch["pause"])}
                    number += 1
                    time.sleep(float(batch["pause"].max()))
            finally:
                open(__file__ + ".ended", "w").close()
    """


def numbers(pieces):
    return [int(piece["number"]) for piece in pieces]


def request(first, count):
    return {"first": np.int64(first), "count": np.int64(count)}


@pytest.fixture
def queue(redis_server, job):
    with InputQueue(port=redis_server.port, name=job) as queue:
        yield queue


def test_pieces_come_in_order_and_leave_nothing_behind(redis_server, db, job, queue, tmp_path):
    with generating(redis_server.port, job, tmp_path):
        pieces = queue.stream(request(5, 4))
        got = [*pieces]
    assert numbers(got) == [5, 6, 7, 8]
    assert "".join(piece["text"].item() for piece in got) == "5 6 7 8 "
    assert got[0].version == "7"
    assert pieces.last_id == "1-5"
    assert not db.keys(f"{job}:pieces*")


def test_a_program_may_end_in_the_middle_of_an_answer(redis_server, job, tmp_path):
    program = """
import sys

import numpy as np

from cluster_serving.client import InputQueue

queue = InputQueue(port=int(sys.argv[1]), name=sys.argv[2])
pieces = queue.stream({"first": np.int64(5), "count": np.int64(50)})
print(next(pieces)["number"])
queue.close()
"""
    with generating(redis_server.port, job, tmp_path):
        arguments = [sys.executable, "-c", program, str(redis_server.port), job]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("5\n", "")


def test_each_piece_comes_when_it_is_made(redis_server, job, queue, tmp_path):
    with generating(redis_server.port, job, tmp_path, ENDLESS), queue.stream({"pause": np.float32(0.05)}) as pieces:
        # Of an answer that has no end, nothing would come if pieces waited for the whole.
        assert numbers(next(pieces) for _ in range(5)) == [0, 1, 2, 3, 4]


def test_a_client_that_does_not_ask_for_pieces_gets_the_whole(redis_server, job, queue, tmp_path):
    with generating(redis_server.port, job, tmp_path):
        result = queue.predict(request(5, 3))
        assert result["number"].tolist() == [5, 6, 7]
        assert result["text"].item() == "5 6 7 "


def test_what_a_generator_returns_is_the_whole(redis_server, job, queue, tmp_path):
    code = """
        class Handler:
            def predict(self, batch):
                yield {"y": batch["x"]}
                return {"y": batch["x"] * 10}
        """
    with generating(redis_server.port, job, tmp_path, code):
        assert queue.predict({"x": np.float32([1, 2])}).tolist() == [10, 20]
        assert [piece.tolist() for piece in queue.stream({"x": np.float32([1, 2])})] == [[1, 2]]


def test_a_model_that_makes_no_pieces_answers_in_one(redis_server, job, queue, tmp_path):
    code = """
        class Handler:
            def predict(self, batch):
                return {"y": batch["x"] * 2}
        """
    with generating(redis_server.port, job, tmp_path, code):
        (piece,) = queue.stream({"x": np.float32([1, 2])})
        assert piece.tolist() == [2, 4]


def test_records_of_a_batch_end_on_their_own(redis_server, db, job, queue, tmp_path):
    """A short answer does not wait for a long one that shares its batch."""
    code = """
        import time
        from cluster_serving.job.handlers import END

        class Handler:
            def predict(self, batch):
                for step in range(100):
                    yield [{"number": step} if step < count else END for count in batch["count"]]
                    time.sleep(0.05)
        """
    streams = [queue.stream({"count": np.int64(count)}) for count in (2, 100)]
    whole = queue.enqueue("whole", {"count": np.int64(3)})
    output = OutputQueue(port=redis_server.port, name=job)
    with output, generating(redis_server.port, job, tmp_path, code):
        assert numbers(streams[0]) == [0, 1]
        assert output.query(whole, timeout=10)["number"].tolist() == [0, 1, 2]
        # The long one goes on, until its client leaves.
        assert db.xlen(job) == 1
        streams[1].close()


def test_bad_input_and_failures_reach_the_client_that_caused_them(redis_server, job, queue, tmp_path):
    with generating(redis_server.port, job, tmp_path):
        with pytest.raises(InvalidInput, match="count is -1; expected 0 or more"):
            next(queue.stream(request(0, -1)))
        with pytest.raises(InvalidInput, match="count"):
            next(queue.stream({"first": np.int64(1)}))
        pieces = queue.stream(request(11, 5))
        assert numbers([next(pieces), next(pieces)]) == [11, 12]
        with pytest.raises(InferenceFailed, match="the handler failed in predict: RuntimeError: unlucky"):
            next(pieces)


def test_a_failure_restarts_the_others_of_its_batch(redis_server, job, queue, tmp_path):
    streams = [queue.stream(request(first, 3)) for first in (1, 11)]
    with generating(redis_server.port, job, tmp_path):
        got = [*streams[0]]
        (restart,) = [index for index, piece in enumerate(got) if isinstance(piece, Restarted)]
        assert numbers(got[:restart]) == [1, 2]
        assert numbers(got[restart + 1 :]) == [1, 2, 3]
        with pytest.raises(TypeError, match="the answer starts again"):
            got[restart]["number"]
        with pytest.raises(InferenceFailed, match="unlucky"):
            list(streams[1])


def test_an_iterator_that_is_left_stops_the_model(redis_server, db, job, queue, tmp_path):
    with generating(redis_server.port, job, tmp_path, ENDLESS):
        for piece in queue.stream({"pause": np.float32(0.01)}):
            if piece["number"] == 3:
                break
        wait_for(lambda: (tmp_path / "handler.py.ended").exists())
        # The slot removes the entry after the handler has ended.
        wait_for(lambda: not db.xlen(job))
        assert db.xpending(job, GROUP)["pending"] == 0


@pytest.mark.parametrize("leave", [lambda pieces: pieces.close(), lambda pieces: None])
def test_an_iterator_that_was_not_begun_stops_its_request_too(db, job, queue, leave):
    leave(queue.stream({"x": [1.0]}))
    wait_until(lambda: not db.xlen(job), 10)
    queue.enqueue("resumed", x=[1.0])
    leave(queue.resume("resumed"))
    wait_until(lambda: not db.xlen(job), 10)
    # Channels of iterators that were dropped are left with the next subscription.
    queue.stream({"x": [1.0]}).close()
    assert not db.xlen(job)
    assert not db.pubsub_channels(f"*{job}*")


def test_a_stream_that_is_refused_leaves_another_request_of_its_uri(redis_server, db, job, queue):
    db.hset(JobKeys(job).limits, "maxQueueLength", 1)
    queue.enqueue("same", x=[1.0])

    async def ask(uri):
        async with AsyncInputQueue(port=redis_server.port, name=job) as other:
            async for _ in other.stream({"x": [1.0]}, uri=uri):
                pass

    with pytest.raises(QueueFull):
        asyncio.run(ask("same"))
    with pytest.raises(QueueFull):
        queue.stream({"x": [1.0]}, uri="same")
    with pytest.raises(InvalidInput, match="uri"):
        asyncio.run(ask(5))
    assert db.xlen(job) == 1
    assert not db.exists(JobKeys(job).native_result("same"))
    assert not db.pubsub_channels(f"*{job}*")


def test_another_process_can_cancel_by_the_uri(redis_server, db, job, queue, tmp_path):
    with generating(redis_server.port, job, tmp_path, ENDLESS):
        pieces = queue.stream({"pause": np.float32(0.01)}, uri="mine")
        next(pieces)
        with InputQueue(port=redis_server.port, name=job) as other:
            assert other.cancel("mine")
        with pytest.raises(RequestCancelled):
            list(pieces)
        wait_for(lambda: (tmp_path / "handler.py.ended").exists())
        assert not queue.cancel("mine")


def test_a_client_goes_on_at_the_piece_that_it_has(redis_server, db, job, queue, tmp_path):
    with generating(redis_server.port, job, tmp_path):
        pieces = queue.stream(request(0, 6), uri="mine")
        assert numbers([next(pieces), next(pieces)]) == [0, 1]
        # As if its process had died: nothing is closed.
        with InputQueue(port=redis_server.port, name=job) as other:
            assert numbers(other.resume("mine", pieces.last_id)) == [2, 3, 4, 5]
            assert not db.exists(JobKeys(job).pieces("mine"))
            with pytest.raises(InvalidInput, match="after is 'x'; expected the id of a piece, such as '1-5'"):
                other.resume("mine", "x")


def test_a_lost_connection_loses_no_piece(redis_server, db, job, queue, tmp_path):
    with generating(redis_server.port, job, tmp_path, ENDLESS):
        got = []
        with queue.stream({"pause": np.float32(0.005)}) as pieces:
            for piece in pieces:
                got.append(int(piece["number"]))
                if len(got) in (5, 20):
                    db.client_kill_filter(_type="pubsub")
                    db.client_kill_filter(_type="normal", skipme=True)
                if len(got) == 40:
                    break
        assert got == [*range(40)]


def test_another_slot_begins_anew_and_the_first_adds_nothing_more(redis_server, db, job, queue, tmp_path):
    """A slot that hangs loses the request to another one, and comes back."""
    entry = queue.stream({"pause": np.float32(0.05)}, uri="mine")
    with generating(redis_server.port, job, tmp_path, ENDLESS):
        assert numbers([next(entry), next(entry)]) == [0, 1]
        (pending,) = db.xpending_range(job, GROUP, "-", "+", 1)
        other = tmp_path / "other"
        other.mkdir()
        with generating(redis_server.port, job, other, ENDLESS, generation=2):
            db.xclaim(job, GROUP, f"{job}-2-0", 0, [pending["message_id"]], justid=True)
            fields = dict(db.xrange(job, pending["message_id"], pending["message_id"])[0][1])
            writer = PieceWriter(db, RedisOptions("", job))
            attempt = writer.attempt([parse_entry(pending["message_id"], fields)])
            assert attempt.add({0: {"value": b"", "serde": "arrow"}}) == []
            wait_for(lambda: (tmp_path / "handler.py.ended").exists())
            stored = [key.decode() for key, _ in db.xrange(JobKeys(job).pieces("mine"))]
            assert stored[-2:] == ["2-0", "2-1"]
            assert attempt.add({0: {"value": b"", "serde": "arrow"}}) == []
            entry.close()
            assert attempt.add({0: {"value": b"", "serde": "arrow"}}) == [0]


def test_a_piece_that_takes_too_long_ends_the_request(redis_server, db, job, queue, tmp_path):
    with generating(redis_server.port, job, tmp_path, ENDLESS):
        pieces = queue.stream({"pause": np.float32(1)}, timeout=0.5)
        next(pieces)
        with pytest.raises(ResultTimeout, match="within 0.5 s"):
            next(pieces)
        assert db.xlen(job) == 0
    with pytest.raises(ResultTimeout, match="no job of that name has ever run"):
        next(queue.stream(request(1, 1), timeout=0.2))


def test_a_request_that_redis_has_lost_is_told(redis_server, db, job, queue, monkeypatch):
    monkeypatch.setattr(announcements, "RECHECK", 0.5)
    pieces = queue.stream(request(1, 1), timeout=20)
    threading.Timer(0.3, lambda: db.delete(job)).start()
    with pytest.raises(RequestLost):
        next(pieces)


def test_coroutines_share_connections(redis_server, db, job, tmp_path):
    async def one(queue, first):
        return [int(piece["number"]) async for piece in queue.stream(request(first, 4), timeout=20)]

    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
            got = await asyncio.gather(*(one(queue, 20 + first) for first in range(100)))
            assert got == [[*range(20 + first, 24 + first)] for first in range(100)]
            assert len(db.client_list()) < 40
            with pytest.raises(InvalidInput, match="count is -1"):
                [piece async for piece in queue.stream(request(0, -1))]

    with generating(redis_server.port, job, tmp_path):
        asyncio.run(main())
    assert not db.keys(f"{job}:pieces*")


def test_a_coroutine_that_is_cancelled_stops_the_model(redis_server, db, job, tmp_path):
    async def read(queue):
        async for _ in queue.stream({"pause": np.float32(0.01)}):
            pass

    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
            task = asyncio.create_task(read(queue))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with queue.stream({"pause": np.float32(0.01)}, uri="again") as pieces:
                await pieces.__anext__()
            assert db.xlen(job) == 0

    with generating(redis_server.port, job, tmp_path, ENDLESS):
        asyncio.run(main())
        wait_for(lambda: (tmp_path / "handler.py.ended").exists())


def wait_for(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_generator_that_hangs_fails_its_request_and_the_next_one_is_answered(redis_server, job, queue, tmp_path):
    code = """
        import time

        class Handler:
            inputs = {"count": "int64"}

            def predict(self, batch):
                for number in range(batch["count"].max()):
                    yield {"number": [number] * len(batch["count"])}
                    if number == 5:
                        time.sleep(1000)
        """
    with generating(redis_server.port, job, tmp_path, code, inference_timeout_s=1):
        pieces = queue.stream({"count": np.int64(10)})
        assert numbers(next(pieces) for _ in range(6)) == [0, 1, 2, 3, 4, 5]
        with pytest.raises(InferenceTimeout, match=r"within 1 s \(inferenceTimeout\)"):
            next(pieces)
        assert numbers(queue.stream({"count": np.int64(3)})) == [0, 1, 2]


def test_an_iterator_may_be_collected_in_the_middle_of_a_call_of_the_client(redis_server, db, job, queue, tmp_path):
    with generating(redis_server.port, job, tmp_path, ENDLESS):
        pieces = queue.stream({"pause": np.float32(0.01)})
        assert numbers([next(pieces)]) == [0]
        pieces.itself = pieces
        del pieces
        with queue.db.connection_pool._lock:
            gc.collect()
        wait_until(lambda: not db.xlen(job), 10)
        # Its thread is free for the next one, and has its subscription back.
        with queue.stream({"pause": np.float32(0.01)}) as again:
            assert numbers([next(again)]) == [0]
    assert len(queue._subscription._subscribed) == 0


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_child_that_drops_an_iterator_of_its_parent_stops_nothing(redis_server, job, queue, tmp_path):
    with generating(redis_server.port, job, tmp_path):
        pieces = queue.stream(request(0, 10))
        assert numbers([next(pieces)]) == [0]
        child = os.fork()
        if not child:
            del pieces
            os._exit(0)
        os.waitpid(child, 0)
        assert numbers(pieces) == [*range(1, 10)]
