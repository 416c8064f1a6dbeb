"""Measurement of a layout: copies of a model, with a number of threads each, compute the batches that are asked for.

Usage: python -m cluster_serving.job.programs.measurement

Each line of standard input, and of standard output, is JSON. The first line of input has the options of the job, and
secret and salt of an encrypted model. The answer has the device of the model, or why nothing can be measured. Each
further line asks for a measurement, whose answer has the records per second and the seconds of a batch. The copies run
as the slots of a TaskManager do, in threads of this process. The process ends with its input.
"""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TextIO

import cv2
import numpy as np

from cluster_serving.connectors.slot.answer import Answer
from cluster_serving.job.computation import Computation
from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.detect import HANDLER, check
from cluster_serving.job.options import ImageOptions, JobOptions
from cluster_serving.job.predictor import Predictor
from cluster_serving.job.request import Request
from cluster_serving.protocol.entry import NATIVE, Entry
from cluster_serving.protocol.errors import ModelError, ServingError
from cluster_serving.protocol.inputs import Image, Input

_TEXT = "the quick brown fox jumps over the lazy dog " * 4
_SMALLEST_SIDE = 32
"""Pixels of the shorter side of an image; an input with fewer is a tensor."""
_USUAL_SIDE = 224
_TIMEOUT_S = 60.0
_SLOW_S = 1.0
"""Seconds of a batch that is not computed again."""


class _Unknown(Exception):
    """Nothing can be measured; the message says why."""


class _Refused(Exception):
    """The engine refuses the model, as it will in a slot; the message says why."""


def main() -> None:
    """Load the model, and measure until the input ends."""
    given = json.loads(sys.stdin.readline())
    # Engines print, too.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        copies = _Copies(JobOptions.from_json(given["options"]), tuple(given["secret"]))
        _write(out, {"device": copies.device})
        for line in sys.stdin:
            _write(out, copies.measure(**json.loads(line)))
    except _Unknown as problem:
        _write(out, {"unknown": str(problem)})
    except _Refused as error:
        _write(out, {"refused": str(error)})
    except ServingError as error:
        _write(out, {"error": str(error)})


def _write(out: TextIO, answer: Mapping[str, object]) -> None:
    out.write(json.dumps(answer) + "\n")
    out.flush()


class _Copies:
    """Copies of a model, loaded when they are needed.

    Raises:
        ServingError: If the model cannot be loaded here; a slot may find what a handler needs.
        _Refused: If its engine refuses it.
        _Unknown: If it is not known which requests it takes.
    """

    def __init__(self, options: JobOptions, secret: tuple[str, str]) -> None:
        self._options = options
        self._secret = secret
        try:
            self._loaded = [Predictor.of(options, secret)]
        except ModelError as error:
            if check(options.model).format == HANDLER:
                raise
            raise _Refused(str(error)) from error
        self._inputs = _inputs(self._loaded[0], options)

    @property
    def device(self) -> str:
        """Device of the first copy."""
        return self._loaded[0].report().device

    def measure(self, copies: int, batch: int, seconds: float) -> dict[str, float]:
        """Compute batches in so many copies for so many seconds, at least one in each."""
        while len(self._loaded) < copies:
            self._loaded.append(Predictor.of(self._options.in_slot(len(self._loaded)), self._secret))
        start = Barrier(copies)
        with ThreadPoolExecutor(copies) as threads:
            lanes = [
                threads.submit(_compute, predictor, self._inputs, batch, seconds, start)
                for predictor in self._loaded[:copies]
            ]
            batch_s = [lane.result() for lane in lanes]
        return {"rate": sum(batch / seconds for seconds in batch_s), "batch_s": max(batch_s)}


def _compute(predictor: Predictor, inputs: Mapping[str, Input], batch: int, seconds: float, start: Barrier) -> float:
    """Compute batches as a slot does; return the seconds of one."""
    requests = [_request(inputs)] * batch
    # A batch is started while the one before is computed, where the model can do that.
    beside = int(predictor.overlaps and batch > 1)
    running: deque[Computation[Answer]] = deque()
    start.wait(_TIMEOUT_S)
    began = time.perf_counter()
    # The first batch prepares memory and threads.
    predictor.start(requests, alone=True).answers()
    count, now = 0, time.perf_counter()
    if now - began > max(seconds, _SLOW_S):
        return now - began
    began = now
    while not count or now - began < seconds:
        running.append(predictor.start(requests, alone=not running))
        if len(running) > beside:
            running.popleft().answers()
            count += 1
            now = time.perf_counter()
    elapsed = now - began
    for rest in running:
        rest.answers()
    return elapsed / count


def _inputs(predictor: Predictor, options: JobOptions) -> Mapping[str, Input]:
    """Return the inputs of a request that the model computes: of zeros, but for texts and images.

    Raises:
        _Unknown: If the model does not tell them.
    """
    report = predictor.report()
    if report.in_pieces:
        raise _Unknown("the handler answers in pieces")
    if report.already_batched:
        raise _Unknown("the size of its batches is that of the requests (inputAlreadyBatched)")
    if not report.inputs:
        raise _Unknown("the handler does not declare its inputs")
    for image in (None if options.image.record_key else options.image, None):
        inputs = {spec.name: _input(spec, image) for spec in report.inputs}
        (outcome,) = predictor.predict([inputs])
        if not isinstance(outcome, ServingError):
            return inputs
    raise _Unknown(f"a record of zeros is refused: {outcome}")


def _input(spec: TensorSpec, image: ImageOptions | None) -> Input:
    shape = spec.record_shape
    if spec.dtype == "str" and shape == ():
        return np.array(_TEXT, object)
    if image is not None and shape is not None and _is_image(shape):
        return _image(shape, image)
    if shape is None or None in shape or spec.dtype == "str":
        raise _Unknown(f"the sizes of an input are not known: {spec} (inputShapes)")
    return np.zeros([size or 0 for size in shape], spec.dtype or "float32")


def _is_image(shape: tuple[int | None, ...]) -> bool:
    """Return True if a record of this shape is an image, by its channels and sides."""
    if len(shape) != 3 or not {1, 3} & {shape[0], shape[-1]}:
        return False
    sides = shape[1:] if shape[0] in (1, 3) else shape[:-1]
    return all(side is None or side >= _SMALLEST_SIDE for side in sides)


def _image(shape: tuple[int | None, ...], image: ImageOptions) -> Image:
    """Return a JPEG of the size that clients are likely to send."""
    sides = shape[1:] if shape[0] in (1, 3) else shape[:-1]
    height, width = (side or _USUAL_SIDE for side in sides)
    if image.resize is not None:
        width, height = image.resize
    blocks = np.random.default_rng(0).integers(0, 255, (16, 16, 3), np.uint8)
    _, encoded = cv2.imencode(".jpg", cv2.resize(blocks, (width, height)))
    return Image(encoded.tobytes())


def _request(inputs: Mapping[str, Input]) -> Request:
    return Request(Entry(b"0-0", "measurement", b"", NATIVE), inputs)


if __name__ == "__main__":
    main()
