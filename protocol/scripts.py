"""Lua scripts that Redis runs for the clients, and procedures made of them.

A procedure is a generator: it yields what it wants of Redis and is sent the reply. So the synchronous and the asyncio
client share its logic.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import redis
import redis.asyncio
from redis.exceptions import NoScriptError, RedisError

T = TypeVar("T")


@dataclass(frozen=True)
class Script:
    """A Lua script; Redis is sent its SHA-1, and its text only when it does not know it, as after a restart."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


class Call(NamedTuple):
    """One run of a script."""

    script: Script
    keys: Sequence[str | bytes]
    arguments: Sequence[str | bytes | int | float]

    def command(self, by_text: bool = False) -> list[Any]:
        """The command and its arguments, as `execute_command` takes them."""
        name, script = ("EVAL", self.script.text) if by_text else ("EVALSHA", self.script.sha)
        return [name, script, len(self.keys), *self.keys, *self.arguments]


class Pause(NamedTuple):
    """A wish to go on after so many seconds."""

    seconds: float


Procedure = Generator[Call | Pause, Any, T]
"""Yields calls and pauses, is sent the reply to a call, and returns its result.

It is thrown the error of Redis, and what cuts a pause short: a cancellation, or Ctrl-C.
"""


def flat(fields: Mapping[str, str | bytes | int | float]) -> list[str | bytes | int | float]:
    """Names and values in turn, as commands take them."""
    return [part for pair in fields.items() for part in pair]


def call(client: redis.Redis, call: Call) -> Any:
    """Run a script."""
    try:
        return client.execute_command(*call.command())  # type: ignore[no-untyped-call]
    except NoScriptError:
        return client.execute_command(*call.command(by_text=True))  # type: ignore[no-untyped-call]


def run(client: redis.Redis, procedure: Procedure[T]) -> T:
    """Carry a procedure out."""
    try:
        step = next(procedure)
        while True:
            reply = None
            try:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    reply = call(client, step)
            except BaseException as error:
                step = _throw(procedure, step, error)
            else:
                step = procedure.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_async(client: redis.asyncio.Redis, procedure: Procedure[T]) -> T:
    """The asyncio variant of `run`."""
    try:
        step = next(procedure)
        while True:
            reply = None
            try:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    reply = await call_async(client, step)
            except BaseException as error:
                step = _throw(procedure, step, error)
            else:
                step = procedure.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


def _throw(procedure: Procedure[Any], step: Call | Pause, error: BaseException) -> Call | Pause:
    """Tell a procedure of an error of Redis, or that its pause is cut short; nobody knows what a call cut short did."""
    if isinstance(error, RedisError) or isinstance(step, Pause):
        return procedure.throw(error)
    raise error


async def call_async(client: redis.asyncio.Redis, call: Call) -> Any:
    """The asyncio variant of `call`."""
    try:
        return await client.execute_command(*call.command())  # type: ignore[no-untyped-call]
    except NoScriptError:
        return await client.execute_command(*call.command(by_text=True))  # type: ignore[no-untyped-call]


async def call_all(client: redis.asyncio.Redis, calls: Sequence[Call]) -> list[Any]:
    """Make independent calls in one trip; errors that concern one of them are in its place."""

    async def ask(calls: Sequence[Call], by_text: bool) -> list[Any]:
        async with client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.execute_command(*call.command(by_text))
            return await pipeline.execute(raise_on_error=False)

    return await with_texts(ask, calls)


async def with_texts(ask: Callable[[Sequence[Call], bool], Awaitable[list[Any]]], calls: Sequence[Call]) -> list[Any]:
    """Make calls, and those again by their texts whose scripts Redis does not know.

    Args:
        ask: Makes calls, by text or not; errors are in the place of replies.
        calls: Independent ones.
    """
    replies = await ask(calls, False)
    unknown = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if unknown:
        again = await ask([calls[index] for index in unknown], True)
        for index, reply in zip(unknown, again, strict=True):
            replies[index] = reply
    return replies
