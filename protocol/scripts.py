"""Lua scripts that Redis runs (lua/), and the functions that send them.

A procedure is a generator that yields calls of scripts and gets their replies, so that the synchronous and the asyncio
client share its logic.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, Union, cast

import redis
import redis.asyncio
from redis.exceptions import NoScriptError, RedisError

from cluster_serving.protocol.redis.dedicated import Commands

T = TypeVar("T")
Argument = Union[str, bytes, int, float]


# The head of each file in lua/ tells its KEYS, ARGV and reply.
#
# Redis undoes nothing of a script that it stops in the middle, as it does when the user may not use a command, when a
# command has another name there, or when a key has another type. So each script writes what must not be alone last, or
# proves before that the next commands are allowed: `EXPIRE key 0` deletes as `DEL` does. At its memory limit Redis
# refuses only the first write of a script, and only if that may need memory.


@dataclass(frozen=True)
class Script:
    """A Lua script. Redis gets its SHA-1, and the text only if that SHA-1 is unknown there, as after a restart."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


def _script(*names: str) -> Script:
    """Return the script in the files of these names, one after the other."""
    folder = Path(__file__).with_name("lua")
    return Script("".join((folder / f"{name}.lua").read_text("utf8") for name in names))


ADD = _script("add")
QUEUE_LENGTH = _script("queue_length")
HOLD = _script("hold")
WITHDRAW = _script("after_pieces", "withdraw")
FETCH = _script("fetch")
PAGE = _script("page")
PUT_FIELDS = _script("put_fields")
REPORT = _script("report")
SWITCH = _script("switch")
HAND_OVER = _script("hand_over")
CLAIM = _script("claim")
HAND_OVER_ALL = _script("hand_over_all")
PUT_CONTROLLER = _script("put_controller")
BACKLOG = _script("backlog")
PUT_MEMBER = _script("put_member")
ANSWER = _script("after_pieces", "answer")
ADD_PIECES = _script("add_pieces")
READ_PIECES = _script("read_pieces")
COPY = _script("copy")
KEEP = _script("keep")
TALLY = _script("tally")
COUNT = _script("count")
REQUEUE = _script("requeue")
RETIRE = _script("retire")
DEAD_LETTERS = _script("dead_letters")
HAS_ENTRY = _script("has_entry")
PUT_LEASES = _script("put_leases")
CLAIM_LEASES = _script("claim_leases")
END_LEASE = _script("end_lease")
COUNT_BEFORE = _script("count_before")
SETTLE = _script("settle")
FIND_PAYLOAD_FOLDER = _script("find_payload_folder")


class Call(NamedTuple):
    """One run of a script."""

    script: Script
    keys: Sequence[str | bytes]
    arguments: Sequence[Argument] = ()

    def command(self, by_text: bool = False) -> list[Any]:
        """Return the command and its arguments, as `execute_command` takes them."""
        name, script = ("EVAL", self.script.text) if by_text else ("EVALSHA", self.script.sha)
        return [name, script, len(self.keys), *self.keys, *self.arguments]


class Pause(NamedTuple):
    """A pause of a procedure."""

    seconds: float


Procedure = Generator[Union[Call, Pause], Any, T]
"""Yields calls and pauses, gets the reply to a call, and returns its result.

`run` throws errors of Redis into the procedure, and also whatever ends a pause early: a cancellation, or Ctrl-C.
"""


def flat(fields: Mapping[str, Argument] | Mapping[bytes, bytes]) -> list[Argument]:
    """Return names and values in turn, as commands take them."""
    return [part for pair in fields.items() for part in pair]


def fields_of(reply: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of a hash that a script has read: names and values in turn, empty for a missing hash."""
    return dict(zip(reply[::2], reply[1::2]))


def fetch_call(keys: Sequence[str | bytes], delete: Sequence[str | bytes] = ()) -> Call:
    """Return the call that reads result hashes, and deletes others.

    Its reply has the fields of each hash that is read (see `fields_of`), or an error in their place.
    """
    return Call(FETCH, [*delete, *keys], [len(delete)])


NEWEST = b"+"
"""Start of the first page of a stream."""


def page_call(stream: str, last: bytes, field: str, value: bytes | None = None) -> Call:
    """Return the call that searches a page of a stream for entries with a field, newest entries first.

    Its reply is the start of the next page (empty after the last page), and id and value of each matching entry.
    `last` is `NEWEST`, or the start of this page from the reply for the page before. With `value` None any value
    matches.
    """
    return Call(PAGE, [stream], [last, field, *([] if value is None else [value])])


def call(client: Commands, call: Call) -> Any:
    """Run a script and return its reply."""
    try:
        return client.execute_command(*call.command())
    except NoScriptError:
        return client.execute_command(*call.command(by_text=True))


async def call_async(client: redis.asyncio.Redis, call: Call) -> Any:
    """Run a script and return its reply: the asyncio variant of `call`."""
    try:
        return await client.execute_command(*call.command())  # type: ignore[no-untyped-call]
    except NoScriptError:
        return await client.execute_command(*call.command(by_text=True))  # type: ignore[no-untyped-call]


def run(client: Commands, procedure: Procedure[T]) -> T:
    """Run a procedure and return its result."""
    reply, error = None, None
    while True:
        try:
            step = procedure.throw(error) if error else procedure.send(reply)
        except StopIteration as end:
            return cast("T", end.value)
        reply, error = None, None
        try:
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                reply = call(client, step)
        except BaseException as raised:
            error = _thrown(step, raised)


async def run_async(client: redis.asyncio.Redis, procedure: Procedure[T]) -> T:
    """Run a procedure and return its result: the asyncio variant of `run`."""
    reply, error = None, None
    while True:
        try:
            step = procedure.throw(error) if error else procedure.send(reply)
        except StopIteration as end:
            return cast("T", end.value)
        reply, error = None, None
        try:
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                reply = await call_async(client, step)
        except BaseException as raised:
            error = _thrown(step, raised)


def _thrown(step: Call | Pause, error: BaseException) -> BaseException:
    """Return an error that a procedure handles: one of Redis, or the end of a pause. Raise any other."""
    if isinstance(error, RedisError) or isinstance(step, Pause):
        return error
    # The effect of an interrupted call is unknown.
    raise error


async def call_all(client: redis.asyncio.Redis, calls: Sequence[Call]) -> list[Any]:
    """Make independent calls in one round trip. An error of one call is in the place of its reply."""

    async def send(calls: Sequence[Call], by_text: bool) -> list[Any]:
        async with client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.execute_command(*call.command(by_text))
            return await pipeline.execute(raise_on_error=False)

    return await with_texts(send, calls)


async def with_texts(send: Callable[[Sequence[Call], bool], Awaitable[list[Any]]], calls: Sequence[Call]) -> list[Any]:
    """Make independent calls, and repeat with their texts those whose scripts Redis does not know.

    `send` makes calls, by text or not, and returns replies with errors in their places.
    """
    replies = await send(calls, False)
    unknown = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if unknown:
        for index, reply in zip(unknown, await send([calls[index] for index in unknown], True)):
            replies[index] = reply
    return replies
