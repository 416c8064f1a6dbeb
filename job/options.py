"""Options of one serving job, which the launcher hands to the job as JSON.

A field has the name of its key in `config.yaml`; see `launcher.config.job_options`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.protocol.record_key import RecordKey

__all__ = ["BatchOptions", "HostedOptions", "ImageOptions", "JobOptions", "ModelOptions", "RedisOptions"]

NO_HANDLER = "none"
"""Value of `ModelOptions.handler`: a `handler.py` in the model folder is not used."""

CPU = "cpu"
"""Value of `ModelOptions.device`, and the name of this device in reports."""

AUTO = "auto"
"""Value of `ModelOptions.device`: a GPU if the engine reports one, else the CPU."""


NO_TOKENIZER: Literal["none"] = "none"
"""Value of `ModelOptions.tokenizer`: clients send token ids, whatever lies beside the model."""


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """Options for encoded images, which become tensors of the model.

    Attributes:
        resize: (width, height) in pixels; None keeps the image's own size.
        shortest_edge: Pixels of the shorter edge, to which the image is scaled in place of `resize`; None for neither.
        resample: How Pillow scales: `nearest`, `bilinear`, `bicubic`, `lanczos`, `box` or `hamming`. Empty: OpenCV's
            bilinear scaling, which takes no mean where it makes images smaller (as in the original).
        crop: (width, height) of the middle that is cut out of the scaled image; None for all of it.
        max_image_pixels: Larger images are refused before they are decoded.
        color: Order of the channels: BGR (as in the original), RGB, or GRAY for a single one.
        layout: HWC or CHW; empty for the layout of the model's shape, or else of its engine.
        scale: Factor for pixels, which are 0 to 255 before.
        mean: Subtracted after the scaling, per channel or one for all.
        std: Divisor after the subtraction, per channel or one for all.
        record_key: Key of encrypted images; None if images are not encrypted.
    """

    resize: tuple[int, int] | None = None
    shortest_edge: int | None = None
    resample: Literal["", "nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"] = ""
    crop: tuple[int, int] | None = None
    max_image_pixels: int = 50_000_000
    color: Literal["BGR", "RGB", "GRAY"] = "BGR"
    layout: Literal["", "HWC", "CHW"] = ""
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    record_key: RecordKey | None = None

    @property
    def changes_size(self) -> bool:
        """True if images do not keep their width and height."""
        return bool(self.resize or self.shortest_edge or self.crop)

    @property
    def normalizes(self) -> bool:
        """True if scale, mean or std change the values of pixels."""
        return self.scale != 1 or any(self.mean) or any(value != 1 for value in self.std)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options for the model.

    Attributes:
        path: Model folder, readable by every TaskManager.
        thread_per_model: Threads that one copy of the model may use.
        inference_precision: `float32`, or empty for the engine's best on this CPU.
        inputs: Names of the model's inputs to feed, in order; empty for the model's own.
        outputs: Names of the outputs to return, in order; empty for all.
        input_shapes: Shapes of one record's inputs, for models without shapes (TorchScript); empty if unknown.
        whole_inputs: True if a record has the whole tensors of the model, or the names of its whole inputs; False if
            every input has a batch. None: symbols and calls tell.
        missing_value: Number that stands for a missing one in a table, beside NaN; None if none does.
        allow_pickle: Load PyTorch pickles, which may run any code.
        encrypted: The files are encrypted (see `job.models.encryption`).
        handler: Class of a handler, as "module:Class"; empty for that of `handler.py` in the folder, if there is one;
            or `NO_HANDLER`.
        inference_timeout_s: Longest time of one call of the model, in seconds; None or 0 for no limit.
        padding: Inputs, each with the value that fills up shorter records, so that they share a batch with longer ones.
            Inputs that a tokenizer makes have such values without it.
        tokenizer: Empty: a `tokenizer.json` beside the model makes its inputs of a text; `pair`: of two texts; or
            `NO_TOKENIZER`.
        max_tokens: Tokens to which texts are cut; None for the tokenizer's own limit.
        max_text_length: Most characters of a text.
        prompt: Text before each text.
        pooling: Makes one vector of those of the tokens (see `job.models.text.pooling`); empty for none.
        pool_prompt: Pooling takes the tokens of the prompt, too.
        embedding_layers: Folders of layers that compute with the pooled vector (see `job.models.text.layers`).
        normalize: Divide output vectors by their length.
        device: `cpu`, `auto`, or names of devices separated by commas (see `job.models.devices.choose`). An engine gets
            the name of the one that it is to use.
        slot: Index of the slot that loads the model.
        configured: The path in the configuration, where `path` is that of a copy.
    """

    path: str
    thread_per_model: int = 1
    inference_precision: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    input_shapes: tuple[tuple[int, ...], ...] = ()
    whole_inputs: bool | tuple[str, ...] | None = None
    missing_value: float | None = None
    allow_pickle: bool = False
    encrypted: bool = False
    handler: str = ""
    inference_timeout_s: float | None = None
    padding: tuple[tuple[str, float], ...] = ()
    tokenizer: Literal["", "none", "pair"] = ""
    max_tokens: int | None = None
    max_text_length: int = 100_000
    prompt: str = ""
    pooling: str = ""
    pool_prompt: bool = True
    embedding_layers: tuple[str, ...] = ()
    normalize: bool = False
    device: str = CPU
    slot: int = 0
    configured: str = ""

    def as_configured(self, message: str) -> str:
        """Return a message that names the configured model, not a copy, which lies anywhere if `path` is relative."""
        copy = rf"(/[^\s:]*)?{re.escape(self.path)}"
        return re.sub(copy, lambda _: self.configured, message) if self.configured else message


MOST_ROWS = 32
"""Most records of a request that is a batch itself, unless `maxBatchSize` says otherwise."""


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Options for batches: when a batch is complete.

    Attributes:
        max_batch_size: Most records in one batch.
        timeout_ms: Longest time, in milliseconds, that a record waits for its batch to fill.
        greedy_batching: Compute a batch as soon as no further request is waiting, instead of waiting for `timeout_ms`.
        input_already_batched: Records have a batch dimension of their own; they are concatenated, not stacked.
        max_rows: Most records of a request that is a batch itself: `max_batch_size`, unless that was measured, as
            clients have to know how many they may send.
    """

    max_batch_size: int = 32
    timeout_ms: int = 10
    greedy_batching: bool = True
    input_already_batched: bool = False
    max_rows: int = MOST_ROWS


MARK = "cluster-serving"
"""Job parameter that marks our jobs on a shared cluster; its value is the submission."""

NAME = "cluster-serving-job"
"""Job parameter with `jobName`."""

GENERATION = "cluster-serving-generation"
"""Job parameter with the number of the generation."""


@dataclass(frozen=True, slots=True)
class HostedOptions:
    """Options of one model of a job that serves several (`job.hosting`); the others are those of the job.

    Attributes:
        name: Name of the model, which its streams and results have in place of that of a job.
        version, numbered: As in `RedisOptions`.
        refused: Reason for which the model is not loaded; empty if it is.
        content: Fingerprint of its files, which slots tell: Redis may lose what a command has written.
    """

    name: str
    model: ModelOptions
    batch: BatchOptions
    image: ImageOptions
    post_processing: str
    request_deadline_ms: int
    version: str
    numbered: bool
    refused: str = ""
    content: str = ""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """All options of a job.

    Attributes:
        submission: Identifier of this start of the job, which slots report (see `connectors.slot.reporting`).
        model_parallelism: Number of task slots, each with a copy of the model.
        execution_mode: `thread` or `process` (`python.execution-mode` of Flink).
        post_processing: Filters applied to every result, as `protocol.values.filters.parse` reads them; empty for none.
        request_deadline_ms: Milliseconds that a request without a deadline of its own may wait; 0 for no limit.
        hosted: The models of a job that serves several; `model` is then the folder of all of them.
    """

    submission: str
    model: ModelOptions
    redis: RedisOptions
    batch: BatchOptions = field(default_factory=BatchOptions)
    image: ImageOptions = field(default_factory=ImageOptions)
    model_parallelism: int = 1
    execution_mode: str = "thread"
    post_processing: str = ""
    request_deadline_ms: int = 0
    hosted: tuple[HostedOptions, ...] = ()

    @property
    def flink_name(self) -> str:
        """Name of the job in Flink, as monitors know it; during a change, the two generations share it."""
        return self.redis.job

    def in_slot(self, index: int) -> JobOptions:
        """Return the options for the slot of an index."""
        return replace(self, model=replace(self.model, slot=index))

    def of_hosted(self, one: HostedOptions) -> JobOptions:
        """Return the options of a hosted model, as if it were a job."""
        return replace(
            self,
            model=one.model,
            batch=one.batch,
            image=one.image,
            post_processing=one.post_processing,
            request_deadline_ms=one.request_deadline_ms,
            redis=replace(self.redis, job=one.name, version=one.version, numbered=one.numbered),
            hosted=(),
        )

    def to_json(self) -> str:
        """Serialize the options for the job."""
        return _adapter().dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> JobOptions:
        """Read the options that `to_json` wrote.

        Raises:
            ValueError: If a field is missing, unknown, or of another type; the message names it.
        """
        raw = json.loads(text)
        try:
            options = _adapter().validate_python(raw)
            # The text must have every field, so that none silently keeps its default.
            wrong = _differences(json.loads(options.to_json()), raw)
        except ValidationError as error:
            # pydantic's own message shows the input, and the URL of Redis may hold a password.
            wrong = [f"{'.'.join(map(str, part['loc']))} ({part['msg']})" for part in error.errors()]
        if wrong:
            raise ValueError(
                f"the job's options are those of another version of cluster-serving: {', '.join(wrong)}; start the job "
                "again with cluster-serving-start"
            )
        return options


@cache
def _adapter() -> TypeAdapter[JobOptions]:
    return TypeAdapter(JobOptions)


def _differences(expected: object, actual: object, path: str = "") -> list[str]:
    """Return the paths at which two JSON documents differ."""
    if not (isinstance(expected, dict) and isinstance(actual, dict)):
        return [] if expected == actual else [path]
    return [
        wrong
        for key in sorted(expected.keys() | actual.keys())
        for wrong in _differences(expected.get(key, ...), actual.get(key, ...), f"{path}.{key}".lstrip("."))
    ]
