"""The interface of a handler: the methods of the user's class, and what they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from cluster_serving.job.handlers.engine import Engine
from cluster_serving.job.handlers.metrics import HandlerMetrics
from cluster_serving.protocol.inputs import Array

END: Any = type("End", (), {"__repr__": lambda self: "END"})()
"""In the place of a record's piece: this record is complete, while others of its batch go on."""

METHODS = ("load", "preprocess", "predict", "postprocess", "unload")
"""Methods that a handler may have."""


@dataclass(frozen=True, slots=True)
class Context:
    """The place of a handler: one task slot of a job.

    Attributes:
        folder: The model folder. That of an encrypted model is removed after `load`.
        threads: Threads that this copy may use (`threadPerModel`).
        max_batch_size: Most records of a batch (`maxBatchSize`).
        job: `jobName`.
        version: Version of the model.
        metrics: Metrics of the handler's own, which are served with those of the job.
    """

    folder: Path
    threads: int
    max_batch_size: int
    job: str
    version: str
    metrics: HandlerMetrics
    _open: Callable[..., Engine] = field(repr=False)
    _read_tokenizer: Callable[[], Any] = field(repr=False)
    _device: Callable[[], str] = field(repr=False)

    @property
    def device(self) -> str:
        """Device of this slot for the handler's own code, as PyTorch names it: "cpu", or "cuda:1" (key `device`).

        `load` follows the key by itself. The first engine that is installed tells which devices there are: PyTorch,
        ONNX Runtime, TensorFlow or OpenVINO, of which the last has "gpu:0" and "npu:0".

        Raises:
            ModelError: If the engine does not report the device that the key names.
        """
        return self._device()

    @property
    def tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer` of `tokenizer.json` in the folder, as texts for the model are tokenized.

        Raises:
            EngineMissing: If the package `tokenizers` is not installed.
            ModelError: If the file cannot be read.
        """
        return self._read_tokenizer()

    def load(
        self,
        name: str = "",
        input_shapes: Sequence[Sequence[int]] = (),
        text: bool = False,
        pooling: Literal["", "mean", "cls", "last"] = "",
        normalize: bool = False,
    ) -> Engine:
        """Load a model with its built-in engine, and compute a batch of zeros if its inputs are known.

        It computes on the device that the key `device` means for its engine and this slot. The same model is loaded
        once. It is closed after the handler.

        Args:
            name: A file or a folder in the model folder, such as "encoder.onnx", "net.xml" or "encoder"; empty for the
                only model there, to which the keys of `config.yaml` apply and the following arguments do not.
            input_shapes: Shapes of one record's inputs, for a model that does not tell them (TorchScript).
            text: Its input is `text`; the `tokenizer.json` beside it makes the model's inputs of the text.
            pooling: As the key of `config.yaml`.
            normalize: As the key of `config.yaml`.

        Raises:
            EngineMissing: If the engine is not installed.
            ModelError: If there is no such model, or it cannot be loaded.
        """
        return self._open(name, input_shapes, text, pooling, normalize)


class Handler(Protocol):
    """Your own code around a model. Every attribute and method is optional; a class need not derive from this one.

    Each task slot makes an instance of its own, and calls it from one thread at a time. A method that raises
    `InvalidInput` refuses the request with that message. Any other exception fails the request that causes it.

    Attributes:
        inputs: Name → type of one record's inputs: "float32[3, ?]" (? is any size), "int64" (a single number), "str" (a
            single text), "str[?]", "float32[...]" (any shape), or "image". Requests are checked and converted. Without
            it, the inputs are those of the model if there is no `preprocess` and no `predict`, and otherwise any.
        outputs: Name → type of one record's outputs, for those who ask for the signature.
    """

    inputs: ClassVar[Mapping[str, str]]
    outputs: ClassVar[Mapping[str, str]]

    def load(self, context: Context) -> None:
        """Prepare for requests, once."""

    def preprocess(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """Convert the inputs of one request.

        Args:
            request: Name → read-only array without a batch dimension; `str` for a single text; an image is uint8
                (height, width, 3).

        Returns:
            Name → array, number, text or any object for `predict`, or else for the model's inputs.
        """
        ...

    def predict(
        self, batch: dict[str, Array]
    ) -> Mapping[str, Any] | Sequence[Mapping[str, Any]] | Iterator[Mapping[str, Any] | Sequence[Any]]:
        """Compute a batch of n records, whose arrays have equal names, dtypes and shapes. Default: the only model.

        Args:
            batch: Name → array (n, ...). Texts, and objects other than arrays and numbers, are an object array (n,).

        Returns:
            Name → array (n, ...) or list of n values; or a list of n dicts.

        Yields:
            Instead, if it is a generator: the next piece of each record, in the same forms. In a list, None stands for
            no piece, and `END` for the end of that record. A value that it returns in the end is the whole answer, for
            clients that do not ask for pieces. Otherwise the whole is made of the pieces.
        """
        ...

    def postprocess(self, result: dict[str, Any]) -> Mapping[str, Any]:
        """Convert the outputs of one record.

        Args:
            result: Name → the record's value: an array without the batch dimension, or an item of a list.

        Returns:
            Name → array, number or text; a dict, list or None is sent as JSON.
        """
        ...

    def unload(self) -> None:
        """Release what `load` has taken, when the slot ends."""


def method(kind: type, name: str) -> bool:
    """Return True if a class has a method of its own, or inherits it from another class than `Handler`."""
    found = getattr(kind, name, None)
    return found is not None and found is not getattr(Handler, name)
