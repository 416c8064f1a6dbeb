"""Queues in processes that fork, and that get them by pickle."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from cluster_serving.client import InputQueue, OutputQueue, announcements

pytestmark = pytest.mark.usefixtures("echo")


def in_child(function, meanwhile=lambda: None):
    """What a forked process returns, as text; this one does something meanwhile."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            text = str(function())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    meanwhile()
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(child, 0)
    return text


@pytest.fixture(autouse=True)
def _without_rechecks(monkeypatch):
    """A message that another process takes is otherwise noticed after five seconds."""
    monkeypatch.setattr(announcements, "RECHECK", 60.0)


def ask(queue, number):
    return queue.predict({"x": np.array([number])}, timeout=10)["x"].item()


def again(queue):
    return pickle.loads(pickle.dumps(queue))  # noqa: S301


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_parent_and_child_have_connections_of_their_own(redis_server, job):
    with InputQueue(url=redis_server.url, name=job) as queue:
        assert ask(queue, 1) == 1

        def many():
            return all(ask(queue, number) == number for number in range(200))

        assert in_child(many, meanwhile=many) == "True"
        assert many()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_an_iterator_of_the_parent_says_that_it_is_not_the_childs(redis_server, job):
    with InputQueue(url=redis_server.url, name=job) as queue:
        results = queue.predict_many({"x": np.array([number])} for number in range(8))
        assert next(results)["x"].item() == 0
        assert in_child(lambda: next(results)).startswith("RuntimeError: this iterator belongs to another process")
        assert [result["x"].item() for result in results] == [*range(1, 8)]


def test_a_queue_can_be_pickled(redis_server, job):
    with InputQueue(url=redis_server.url, name=job, reconnect=3) as queue, again(queue) as other:
        assert (other.name, other._reconnect) == (job, 3)
        assert ask(other, 5) == 5
    with OutputQueue(url=redis_server.url, name=job) as queue:
        assert again(queue).name == job
