"""The channel between two processes of a front end: questions and answers, as lines of JSON."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cluster_serving.protocol.compat import timeout as time_limit

Answers = Mapping[str, Callable[[Any], Awaitable[Any]]]
"""Coroutine functions by the names of the questions that they answer; each takes the value of the question. The values
and the answers are those of JSON."""

_LONGEST = 64 << 20


class Channel:
    """One end of a channel; used by one event loop. Made by `open`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Answers) -> None:
        self._reader = reader
        self._writer = writer
        self._answers = answers
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, sock: socket.socket, answers: Answers) -> Channel:
        """Return the end of a channel that a connected socket is."""
        return cls(*await asyncio.open_connection(sock=sock, limit=_LONGEST), answers)

    async def run(self) -> None:
        """Answer the questions of the other end until that has ended."""
        try:
            # The last line of an end that was killed may be a part of one.
            while (line := await self._reader.readline()).endswith(b"\n"):
                number, question, value = json.loads(line)
                if question:
                    task = asyncio.create_task(self._answer(number, question, value))
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)
                elif (asked := self._asked.pop(number, None)) is not None and not asked.done():
                    asked.set_result(value)
        except ConnectionError:
            # It was killed.
            pass
        finally:
            self._writer.close()
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(ConnectionResetError())

    async def ask(self, question: str, value: Any = None, timeout: float = 5.0) -> Any:
        """Return the answer of the other end.

        Raises:
            ConnectionError: If it has ended.
            asyncio.TimeoutError: If it does not answer within `timeout` seconds.
        """
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send(number, question, value)
        try:
            async with time_limit(timeout):
                return await asked
        finally:
            self._asked.pop(number, None)

    def tell(self, question: str, value: Any = None) -> None:
        """Ask, and want no answer. Without effect if the other end has ended."""
        if not self._writer.is_closing():
            self._send(0, question, value)

    async def _answer(self, number: int, question: str, value: Any) -> None:
        answer = await self._answers[question](value)
        if number and not self._writer.is_closing():
            self._send(number, "", answer)

    def _send(self, number: int, question: str, value: Any) -> None:
        if self._writer.is_closing():
            raise ConnectionResetError
        self._writer.write(json.dumps((number, question, value)).encode() + b"\n")
