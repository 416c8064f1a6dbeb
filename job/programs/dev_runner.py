"""Program of `cluster-serving-cli try`: runs a model folder on one record, and again after each change of a file.

Usage: python -m cluster_serving.job.programs.dev_runner

Standard input has JSON: the `options` of the job, the `inputs` as they were written, and `watch`. The process ends with
1 if the last run failed.
"""

import io
import json
import logging
import os
import pprint
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.job.handlers.failure import HandlerFailed, own_frames
from cluster_serving.job.models.base import TensorSpec, dummy_inputs
from cluster_serving.job.models.detect import HANDLER_FILE
from cluster_serving.job.models.location import locate
from cluster_serving.job.options import JobOptions
from cluster_serving.job.predictor.record import convert
from cluster_serving.job.trial import Trial
from cluster_serving.protocol.errors import InvalidInput, ModelError, ServingError
from cluster_serving.protocol.inputs import Image, Input
from cluster_serving.protocol.original.json import to_input
from cluster_serving.protocol.values import utf8

_POLL_S = 0.2
# A text of more characters is shown by its first ones.
_LONG, _SHOWN = 2000, 200
_ANYTHING = TensorSpec("", "", None)

# Time of the last change in ns, and size in bytes.
_Files = dict[Path, tuple[int, int]]


def main() -> None:
    """Run the folder until the process is interrupted, or once."""
    given = json.load(sys.stdin)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A locale may lack a character of the output.
        sys.stdout.reconfigure(errors="replace")
    options = JobOptions.from_json(given["options"])
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    folder = locate(options.model.path)
    while True:
        seen = _files(folder)
        succeeded = _run(options, given["inputs"])
        if not given["watch"]:
            sys.exit(not succeeded)
        print(f"\nWaiting for a change in {folder}; Ctrl-C ends", flush=True)
        try:
            await_change(_polled(folder), seen)
        except KeyboardInterrupt:
            sys.exit(not succeeded)
        print(flush=True)


def read_inputs(texts: Sequence[str], specs: Sequence[TensorSpec]) -> dict[str, Input]:
    """Return the inputs that were written as NAME=VALUE; zeros for the known inputs if there are none.

    A value is JSON, a text, or `@` and the path of a file: an array (.npy), JSON (.json), a text (.txt) or an image.

    Raises:
        InvalidInput: If a value cannot be read; the message names the input.
    """
    if not texts:
        zeros = dummy_inputs(specs, 1) if specs else None
        if zeros is None:
            raise InvalidInput("the inputs of this model are not known: give each as --input NAME=VALUE")
        return {spec.name: array[0, ...] for spec, array in zip(specs, zeros, strict=True)}
    known = {spec.name: spec for spec in specs}
    inputs = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not (name and mark):
            raise InvalidInput(f"--input {text}: expected NAME=VALUE, such as x=[1,2,3], text=hello or photo=@cat.jpg")
        if known and name not in known:
            raise InvalidInput(
                f"--input {text}: the model has no input {name!r}; it expects {', '.join(map(str, specs))}"
            )
        inputs[name] = _value(name, value, known.get(name, _ANYTHING))
    return inputs


def await_change(snapshots: Iterator[_Files], seen: _Files) -> None:
    """Take snapshots until one differs from `seen` and equals the one before: no file is half written any more."""
    before = seen
    for now in snapshots:
        if now == before and now != seen:
            return
        before = now


def _value(name: str, text: str, expected: TensorSpec) -> Input:
    if text.startswith("@"):
        path = Path(os.path.expanduser(text[1:]))
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"--input {name}: {path} cannot be read: {error.strerror}") from None
        if path.suffix == ".npy":
            return convert(np.load(path, allow_pickle=False))
        if path.suffix not in (".json", ".txt"):
            return Image(content)
        if problem := utf8.fault(content):
            raise InvalidInput(f"--input {name}: {path}: {problem}")
        text = content.decode("utf-8-sig")
        if path.suffix == ".txt":
            return convert(text)
    try:
        # A text may look like a number.
        value = text if expected.dtype == "str" and not text.startswith(("[", '"')) else json.loads(text)
    except ValueError:
        value = text
    return convert(value) if isinstance(value, str) else to_input(name, value, expected)


def _run(options: JobOptions, texts: Sequence[str]) -> bool:
    """Load the folder, compute the record, and print the result; return True if there is a result."""
    began = time.perf_counter()
    try:
        trial = Trial.of(options)
    except ModelError as error:
        _print_error(error, locate(options.model.path))
        return False
    with trial:
        loaded = time.perf_counter()
        try:
            inputs = read_inputs(texts, trial.report().inputs)
            began_computing = time.perf_counter()
            pieces = _Pieces() if trial.report().in_pieces else None
            outcome = trial.compute(inputs, pieces)
        except ServingError as error:
            outcome, began_computing = error, loaded
        seconds = time.perf_counter() - began_computing
        model = trial.report().model
        print(f"{model.rstrip(' →')}  (loaded in {loaded - began:.1f} s, computed in {1000 * seconds:.1f} ms)")
        if isinstance(outcome, ServingError):
            if isinstance(outcome, HandlerFailed):
                print(outcome.traceback, end="")
            print(f"{outcome.code}: {outcome}")
            return False
        for line in shown(outcome):
            print(line)
    return True


class _Pieces:
    """Prints the pieces of an answer as they are made, with the time since the one before."""

    def __init__(self) -> None:
        self._number = 0
        self._last = time.perf_counter()

    def __call__(self, outputs: dict[str, Any]) -> None:
        now = time.perf_counter()
        self._number += 1
        print(
            f"piece {self._number}, after {1000 * (now - self._last):.1f} ms: {'; '.join(shown(outputs))}", flush=True
        )
        self._last = time.perf_counter()


def shown(outputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that show outputs."""
    for name, value in outputs.items():
        if isinstance(value, np.ndarray):
            yield f"{name}: {value.dtype}{list(value.shape)} {np.array2string(value, threshold=64, separator=', ')}"
        elif isinstance(value, str) and len(value) > _LONG:
            # For instance an image in base64, which tells a reader nothing.
            yield f"{name}: {value[:_SHOWN]!r} and {len(value) - _SHOWN:,} more characters"
        else:
            yield f"{name}: {pprint.pformat(value, sort_dicts=False)}"


def _print_error(error: ModelError, folder: Path) -> None:
    # The frames are those of a handler; an engine's would be ours alone.
    if (cause := error.__cause__) and (folder / HANDLER_FILE).exists():
        print("".join(traceback.format_exception(type(cause), cause, own_frames(cause.__traceback__))), end="")
    print(f"{error.code}: {error}")


def _polled(folder: Path) -> Iterator[_Files]:
    while True:
        time.sleep(_POLL_S)
        yield _files(folder)


def _files(folder: Path) -> _Files:
    found = {}
    for path in folder.rglob("*"):
        if not any(part.startswith((".", "__pycache__")) for part in path.relative_to(folder).parts):
            try:
                status = path.stat()
            except OSError:
                # An editor replaces a file when it saves it.
                continue
            found[path] = (status.st_mtime_ns, status.st_size)
    return found


if __name__ == "__main__":
    main()
