"""Lock of a job in its Redis: one command at a time starts or stops the job, from whatever machine."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from redis.exceptions import RedisError

from cluster_serving.launcher.command_log import Say, say, warn
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.jobs.store import JobStore, opened
from cluster_serving.launcher.services.process import this_command
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.scripts import HOLD, Call, call

EXPIRES_S = 15
"""Seconds after which the lock of a command that was killed is free."""

_POLL_S = 0.2


def holder(store: JobStore) -> str:
    """Return the command that starts, changes or stops a job at the moment; empty if none does."""
    return store.client.hget(store.keys.command, "holder") or ""


@contextmanager
def for_job(config: Config, job: str, tell: Say = warn) -> Iterator[None]:
    """Let one command at a time start or stop a job; `tell` receives a message if Redis takes no lock."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(stack.enter_context(opened(config, job))))
        except (ServingError, RedisError, OSError) as error:
            tell(f"let no other command start or stop job {job} now, as its Redis takes no lock: {error}")
        yield


@contextmanager
def locked(store: JobStore) -> Iterator[None]:
    """Hold the lock of a job, after waiting for the command that holds it.

    Raises:
        RedisError: If Redis does not take the lock.
    """
    token = uuid.uuid4().hex

    def hold(seconds: int) -> str:
        """Take or renew the lock, or release it with 0 seconds; return the command that holds it instead."""
        return str(call(store.client, Call(HOLD, [store.keys.command], [token, seconds, this_command()])) or "")

    told = ""
    while holder := hold(EXPIRES_S):
        if holder != told:
            say(f"Waiting for {holder}, which works on job {store.job}")
            told = holder
        time.sleep(_POLL_S)
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(EXPIRES_S / 3):
            with suppress(RedisError, OSError):
                hold(EXPIRES_S)

    renewer = threading.Thread(target=renew, daemon=True)
    renewer.start()
    try:
        yield
    finally:
        ended.set()
        renewer.join()
        with suppress(RedisError, OSError):
            hold(0)
