"""Measurement of layouts on this machine: a process for each number of threads, whose copies compute in turn."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from cluster_serving.job.options import CPU, JobOptions
from cluster_serving.launcher.jobs.layout.choice import Asked, Figure, candidates, explore
from cluster_serving.launcher.jobs.layout.quiet import Surroundings
from cluster_serving.launcher.services import memory
from cluster_serving.launcher.services.supervisor import python_command
from cluster_serving.protocol.errors import ModelError

_POINTS = 50
"""Measurements for which the time should do."""
_SHORTEST_S, _LONGEST_S = 0.05, 1.0

_PROCESS_BYTES = 300 << 20


class NotMeasured(Exception):
    """A model cannot be measured; the message says why.

    Attributes:
        lasts: True if the next attempt would find the same.
    """

    def __init__(self, message: str, lasts: bool = False) -> None:
        super().__init__(message)
        self.lasts = lasts


def measure(
    options: JobOptions,
    secret: tuple[str, str],
    asked: Asked,
    cores: int,
    size: int,
    seconds: float,
    timeout: float,
    log: Path,
) -> tuple[list[Figure], str]:
    """Measure the layouts for what is asked; return the figures, and in words what disturbed them.

    Args:
        options: Options of the job.
        secret: Secret and salt of an encrypted model.
        asked: Values of the configuration.
        cores: Cores of this machine.
        size: Bytes of the model's files.
        seconds: Time for the measurements, after the model is loaded.
        timeout: Seconds for which a process may load the model, or compute.
        log: File for what engines and handlers print.

    Raises:
        ModelError: If the engine refuses the model.
        NotMeasured: If nothing can be measured.
    """
    with ExitStack() as stack, log.open("wb") as file, TemporaryDirectory() as folder:

        def loading(threads: int) -> _Copies:
            model = replace(options.model, thread_per_model=threads)
            return stack.enter_context(_Copies(replace(options, model=model), secret, folder, file, timeout))

        gpus = 0
        if options.model.device != CPU:
            first = loading(asked.threads or 1)
            if first.device() != CPU:
                gpus = options.model.device.count(",") + 1
        pairs = _fitting(candidates(cores, asked, gpus), size)
        groups = {threads: loading(threads) for threads in dict.fromkeys(threads for _, threads in pairs)}
        for group in groups.values():
            group.device()
        surroundings = Surroundings(cores)
        began = time.monotonic()
        window = min(max(seconds / _POINTS, _SHORTEST_S), _LONGEST_S)

        def figure(copies: int, threads: int, batch: int) -> Figure:
            rate, batch_s = groups[threads].compute(copies, batch, window)
            return Figure(copies, threads, batch, round(rate, 1), round(1000 * batch_s, 3))

        figures = explore(pairs, asked, figure, lambda share: time.monotonic() > began + share * seconds)
        return figures, surroundings.disturbance()


def _fitting(pairs: Sequence[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Return the layouts that the free memory can hold, all of them being loaded at once."""
    free = memory.available_memory()

    def fits(pairs: Sequence[tuple[int, int]]) -> bool:
        most = {threads: max(copies for copies, each in pairs if each == threads) for _, threads in pairs}
        return len(most) * _PROCESS_BYTES + sum(most.values()) * memory.loading(size) <= free

    chosen: list[tuple[int, int]] = []
    # Of a large model, one copy of all threads is the layout to have figures of.
    for pair in sorted(pairs, key=lambda pair: (pair[0], -pair[1])):
        if fits([*chosen, pair]):
            chosen.append(pair)
    if not chosen:
        raise NotMeasured("the free memory has no room for a copy of the model that is measured")
    return [pair for pair in pairs if pair in chosen]


class _Copies:
    """Copies of a model with one number of threads, in processes that end with the context.

    In thread mode one process has all copies, in process mode each copy has a process, as in Flink.
    """

    def __init__(
        self, options: JobOptions, secret: tuple[str, str], folder: str, log: IO[bytes], timeout: float
    ) -> None:
        self._folder = folder
        self._options = options
        self._secret = secret
        self._log = log
        self._timeout = timeout
        self._device = ""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._begin()

    def __enter__(self) -> _Copies:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def device(self) -> str:
        """Wait until the first copy is loaded, and return its device.

        Raises:
            ModelError: If the engine refuses the model.
            NotMeasured: If it cannot be loaded, or its requests are not known.
        """
        if not self._device:
            self._device = str(self._answer(self._processes[0])["device"])
        return self._device

    def compute(self, copies: int, batch: int, seconds: float) -> tuple[float, float]:
        """Compute batches in so many copies; return the records per second, and the seconds of a batch.

        Raises:
            NotMeasured: If a process ends, or does not answer.
        """
        apart = self._options.execution_mode == "process"
        while apart and len(self._processes) < copies:
            self._begin()
            self._answer(self._processes[-1])
        used = self._processes[:copies] if apart else self._processes[:1]
        asked = {"copies": 1 if apart else copies, "batch": batch, "seconds": seconds}
        for process in used:
            self._send(process, asked)
        answers = [self._answer(process) for process in used]
        return sum(answer["rate"] for answer in answers), max(answer["batch_s"] for answer in answers)

    def _begin(self) -> None:
        options = self._options.in_slot(len(self._processes))
        process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            python_command("cluster_serving.job.programs.measurement"),
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
        )
        self._processes.append(process)
        self._send(process, {"options": options.to_json(), "secret": self._secret})

    def _send(self, process: subprocess.Popen[bytes], message: object) -> None:
        try:
            _pipe(process.stdin).write(json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            raise self._ended(process) from None

    def _answer(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        pipe = _pipe(process.stdout)
        if not select.select([pipe], [], [], self._timeout)[0]:
            raise NotMeasured(f"the model takes longer than {self._timeout:.0f} s", lasts=True)
        line = pipe.readline()
        if not line:
            raise self._ended(process)
        answer: dict[str, Any] = json.loads(line)
        if problem := answer.get("unknown"):
            raise NotMeasured(problem, lasts=True)
        if error := answer.get("refused"):
            raise ModelError(error)
        if error := answer.get("error"):
            raise NotMeasured(error)
        return answer

    def _ended(self, process: subprocess.Popen[bytes]) -> NotMeasured:
        code = process.wait()
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return NotMeasured(f"its process ended ({cause}); see {self._log.name}")


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - for mypy
    return pipe
