"""The workers of a front end: further processes that serve HTTP, as the first one sees them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, cast

from cluster_serving.frontend.errors import StartError
from cluster_serving.frontend.server import metrics
from cluster_serving.frontend.server.metrics import Part
from cluster_serving.frontend.server.processes.channel import Answers, Channel

log = logging.getLogger(__name__)

SOCKETS = "CLUSTER_SERVING_WORKER_SOCKETS"
"""Environment variable of a worker: the numbers of its sockets, for messages and for connections."""

PLAIN, TLS = b"-", b"s"
"""Kinds of connections."""

_PAUSE = 1.0
"""Seconds until a worker that has died is started again."""

_ENDING = 5.0
"""Seconds beyond those for the last answers after which a worker is killed."""

_METRICS_WITHIN = 1.0
_LOOK_EVERY = 0.02


class Workers:
    """Starts workers, gives them connections, and starts those again that die; used by one event loop.

    The first process accepts all connections, so that a connection waits for no process that is busy or dead, and each
    process gets as many as the others.

    Args:
        count: Number of workers.
        command: Command that starts one.
        options: What each reads from its standard input.

    Attributes:
        answers: Answers to their questions.
    """

    def __init__(self, count: int, command: Sequence[str], options: bytes = b"") -> None:
        self.answers: Answers = {}
        self._count = count
        self._command = command
        self._options = options
        self._running: dict[int, _Worker] = {}
        self._latest: dict[int, Part] = {}
        self._ended: list[Part] = []
        self._last: tuple[str, object] | None = None
        self._timeout = 0.0
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Return when all serve.

        Raises:
            StartError: If one ends before.
        """
        ready = [asyncio.get_running_loop().create_future() for _ in range(self._count)]
        self._keepers = [asyncio.create_task(self._keep(index, future)) for index, future in enumerate(ready)]
        try:
            await asyncio.gather(*ready)
        except StartError:
            self.finish(0, 0, 0)
            await self.ended()
            raise

    def give(self, connection: socket.socket, with_tls: bool, own: int) -> bool:
        """Give a connection to the worker that has the fewest, and close it here.

        Return False if none has fewer than `own` connections, those of this process, or as many.
        """
        worker = min(self._serving().values(), key=lambda worker: worker.connections, default=None)
        if worker is None or worker.connections > own:
            return False
        # One that hangs, or has just died.
        with suppress(OSError):
            socket.send_fds(worker.sock, [TLS if with_tls else PLAIN], [connection.fileno()])
            worker.given += 1
            connection.close()
            return True
        return False

    async def total_metrics(self, own: Part) -> Part:
        """Return the metrics of all processes together, those of this one being given.

        What was known of a worker that has died still counts: a counter never falls.
        """
        await asyncio.gather(*(self._read_metrics(index, worker) for index, worker in self._serving().items()))
        return metrics.total([own, *self._latest.values(), *self._ended])

    def drain(self) -> None:
        """Let them ask their clients to leave, and be not ready."""
        self._tell("drain", None)

    def finish(self, least: float, most: float, timeout: int) -> None:
        """Let them end: wait for clients to leave, see `AppServer.wait_for_clients`, and answer the last requests."""
        self._timeout = most + timeout + _ENDING
        self._tell("finish", (least, most, timeout))

    async def ended(self, at_once: Callable[[], bool] = lambda: False) -> None:
        """Return when all have ended; those that take too long are killed, and all once `at_once` returns True."""
        deadline = time.monotonic() + self._timeout
        while left := [keeper for keeper in self._keepers if not keeper.done()]:
            if at_once() or time.monotonic() > deadline:
                for worker in self._running.values():
                    worker.process.kill()
            await asyncio.wait(left, timeout=_LOOK_EVERY)

    def _serving(self) -> dict[int, _Worker]:
        return {index: worker for index, worker in self._running.items() if worker.is_ready.is_set()}

    def _tell(self, what: str, value: object) -> None:
        # Also for one that is being started.
        self._last = what, value
        for worker in self._running.values():
            worker.channel.tell(what, value)

    async def _keep(self, index: int, ready: asyncio.Future[None]) -> None:
        while self._last is None:
            try:
                how = await self._run(index, ready)
            except OSError as error:
                how = f"could not be started ({error.strerror})"
            if not ready.done():
                ready.set_exception(StartError(f"a worker of the front end {how} before it served"))
                return
            if self._last is None:
                log.error("worker %d of the front end %s; it is started again", index + 1, how)
                await asyncio.sleep(_PAUSE)

    async def _run(self, index: int, ready: asyncio.Future[None]) -> str:
        """Run a worker until it ends; return how it did."""
        worker = self._running[index] = await _Worker.start(self._command, self._options, self.answers)
        if self._last is not None:
            worker.channel.tell(*self._last)
        talk = asyncio.create_task(worker.channel.run())
        is_ready = asyncio.create_task(worker.is_ready.wait())
        await asyncio.wait((talk, is_ready), return_when=asyncio.FIRST_COMPLETED)
        is_ready.cancel()
        if worker.is_ready.is_set() and not ready.done():
            ready.set_result(None)
        await talk
        del self._running[index]
        code = await worker.ended()
        if (latest := self._latest.pop(index, None)) is not None:
            self._ended = [metrics.total([metrics.counted(latest), *self._ended])]
        return f"ended with signal {-code}" if code < 0 else f"ended with exit code {code}"

    async def _read_metrics(self, index: int, worker: _Worker) -> None:
        # One that hangs has its earlier numbers.
        with suppress(ConnectionError, asyncio.TimeoutError):
            part = await worker.channel.ask("metrics", timeout=_METRICS_WITHIN)
            if self._running.get(index) is worker:
                self._latest[index] = part


class _Worker:
    """One worker.

    Attributes:
        is_ready: Set when it serves.
        given: Number of connections that it has got.
        sock: Socket that brings it connections.
    """

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self.process = process
        self.sock = sock
        self.is_ready = asyncio.Event()
        self.given = 0
        self._closed = 0
        self.channel: Channel

    @classmethod
    async def start(cls, command: Sequence[str], options: bytes, answers: Answers) -> _Worker:
        messages, its_messages = socket.socketpair()
        connections, its_connections = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connections.setblocking(False)
        with its_messages, its_connections:
            numbers = its_messages.fileno(), its_connections.fileno()
            try:
                # Not by uvloop, whose fork makes gRPC write warnings.
                process = subprocess.Popen(  # noqa: S603
                    command,
                    stdin=subprocess.PIPE,
                    pass_fds=numbers,
                    env={**os.environ, SOCKETS: " ".join(map(str, numbers))},
                )
            except OSError:
                messages.close()
                connections.close()
                raise
        # One that has ended already is noticed by its channel.
        with suppress(BrokenPipeError), cast("IO[bytes]", process.stdin) as stdin:
            stdin.write(options)
        worker = cls(process, connections)
        own = {"ready": worker._note_ready, "closed": worker._note_closed}
        worker.channel = await Channel.open(messages, {**answers, **own})
        return worker

    @property
    def connections(self) -> int:
        """Number of its connections."""
        return self.given - self._closed

    async def ended(self) -> int:
        """Return the exit code of a worker that has closed its channel, and is killed if it goes on."""
        self.sock.close()
        deadline = time.monotonic() + _ENDING
        while (code := self.process.poll()) is None:
            if time.monotonic() > deadline:
                self.process.kill()
            await asyncio.sleep(_LOOK_EVERY)
        return code

    async def _note_ready(self, _: object) -> None:
        self.is_ready.set()

    async def _note_closed(self, count: int) -> None:
        self._closed += count
