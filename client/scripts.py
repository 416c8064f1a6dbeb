"""Lua scripts that Redis runs for the clients, and procedures made of them.

A procedure is a generator: it yields what it wants of Redis and is sent the reply. So the synchronous and the asyncio
client share its logic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import redis
import redis.asyncio
from redis.exceptions import NoScriptError

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


Procedure = Generator[Call, Any, T]
"""Yields calls, is sent their replies, and returns its result."""


def execute(client: redis.Redis, call: Call) -> Any:
    """Run a script."""
    try:
        return client.execute_command(*call.command())  # type: ignore[no-untyped-call]
    except NoScriptError:
        return client.execute_command(*call.command(by_text=True))  # type: ignore[no-untyped-call]


def run(client: redis.Redis, procedure: Procedure[T]) -> T:
    """Carry a procedure out."""
    try:
        call = next(procedure)
        while True:
            call = procedure.send(execute(client, call))
    except StopIteration as end:
        result: T = end.value
        return result


async def run_async(client: redis.asyncio.Redis, procedure: Procedure[T]) -> T:
    """The asyncio variant of `run`."""
    try:
        call = next(procedure)
        while True:
            try:
                reply = await client.execute_command(*call.command())  # type: ignore[no-untyped-call]
            except NoScriptError:
                reply = await client.execute_command(*call.command(by_text=True))  # type: ignore[no-untyped-call]
            call = procedure.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
