"""What one serving job needs to know, handed over from the launcher as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.protocol.encryption import RecordKey

__all__ = ["BatchOptions", "ImageOptions", "JobOptions", "ModelOptions", "RedisOptions"]


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How an encoded image becomes the tensor that the model takes.

    Attributes:
        resize: (width, height) in pixels, or None to keep the image's own size.
        max_pixels: Larger images are refused before they are decoded.
        color: Order of the channels: BGR (the original's), RGB, or GRAY for a single one.
        layout: HWC or CHW; empty for what the model's shape or else its engine says.
        scale: Pixels from 0 to 255 are multiplied by this,
        mean: then this is subtracted, per channel or one for all,
        std: then they are divided by this, per channel or one for all.
        record_key: Images are encrypted with this (`recordEncrypted`); None if they are not.
    """

    resize: tuple[int, int] | None = None
    max_pixels: int = 50_000_000
    color: str = "BGR"
    layout: str = ""
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    record_key: RecordKey | None = None

    @property
    def normalizes(self) -> bool:
        """Whether pixels become other numbers than they are."""
        return self.scale != 1 or any(self.mean) or any(value != 1 for value in self.std)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How the model is loaded.

    Attributes:
        path: Model folder, readable by every TaskManager.
        threads: Threads that one copy of the model may use (`threadPerModel`).
        precision: `float32`, or empty for what the engine does best on this CPU (`inferencePrecision`).
        inputs: Names of the model's inputs to feed, in order; empty for the model's own.
        outputs: Names of the outputs to return, in order; empty for all.
        input_shapes: Shapes of one record's inputs, for models that do not carry them (TorchScript); empty if unknown.
        allow_pickle: Load PyTorch pickles, which may run any code (`allowPickle`).
        encrypted: The files are encrypted (see `job.models.encryption`).
        timeout_s: Longest time of one call of the model, in seconds (`inferenceTimeout`); 0 for no limit.
    """

    path: str
    threads: int = 1
    precision: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    input_shapes: tuple[tuple[int, ...], ...] = ()
    allow_pickle: bool = False
    encrypted: bool = False
    timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """When a batch is complete.

    Attributes:
        max_size: Most records in one batch.
        timeout_ms: Longest time, in milliseconds, that a record waits for its batch to fill.
        greedy: Fire as soon as no further request is waiting, instead of waiting for `timeout_ms`.
        inputs_already_batched: Records carry a batch dimension of their own; they are concatenated, not stacked.
    """

    max_size: int = 32
    timeout_ms: int = 10
    greedy: bool = True
    inputs_already_batched: bool = False


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Everything that defines a job.

    Attributes:
        name: `jobName`: the stream, the prefix of the result keys and the name in the Flink UI.
        submission: Identifier of this start of the job; the slots report under it (see `connectors.reporting`).
        parallelism: Number of task slots, each with a copy of the model (`modelParallelism`).
        execution_mode: `thread` or `process` (`python.execution-mode` of Flink).
        post_processing: Filter applied to every result: "", "topN(n)" or "pickTopN(n)".
        request_deadline_ms: Milliseconds that a request without a deadline of its own may wait; 0 for no limit.
    """

    name: str
    submission: str
    model: ModelOptions
    redis: RedisOptions
    batch: BatchOptions = field(default_factory=BatchOptions)
    image: ImageOptions = field(default_factory=ImageOptions)
    parallelism: int = 1
    execution_mode: str = "thread"
    post_processing: str = ""
    request_deadline_ms: int = 0

    def to_json(self) -> str:
        """Serialize for the command line of the job."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobOptions:
        """Read what `to_json` wrote."""
        raw: dict[str, Any] = json.loads(text)
        model, image = raw.pop("model"), raw.pop("image")
        return cls(
            model=ModelOptions(
                path=model["path"],
                threads=model["threads"],
                precision=model.get("precision", ""),
                inputs=tuple(model["inputs"]),
                outputs=tuple(model["outputs"]),
                input_shapes=tuple(tuple(shape) for shape in model["input_shapes"]),
                allow_pickle=model.get("allow_pickle", False),
                encrypted=model.get("encrypted", False),
                timeout_s=model.get("timeout_s", 0.0),
            ),
            redis=RedisOptions(**raw.pop("redis")),
            batch=BatchOptions(**raw.pop("batch")),
            image=ImageOptions(
                **image
                | {"resize": tuple(image["resize"]) if image["resize"] else None}
                | {name: tuple(image[name]) for name in ("mean", "std")}
                | {"record_key": RecordKey(**image["record_key"]) if image.get("record_key") else None}
            ),
            **raw,
        )
