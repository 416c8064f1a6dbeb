"""Predictor: a model folder as a function of columns, without Flink and without Redis."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster_serving.embed.columns import Columns, Scored, collected, gathered, joined, length, pieces, rows
from cluster_serving.embed.copies import Copy, copy_of
from cluster_serving.embed.settings import Settings
from cluster_serving.job import predictor
from cluster_serving.job.models.versions import version_folders
from cluster_serving.job.predictor.record import NamedOutputs, Value
from cluster_serving.protocol.errors import ModelError, ServingError, from_wire
from cluster_serving.protocol.slots import SlotReport, TensorSpec

log = logging.getLogger(__name__)

_LOOK_S = 5.0
_CALL_BYTES = 1 << 20
_FEWEST, _MOST = 32, 4096


class Predictor:
    """A model as a function of columns; it answers as a job with the same model and keys does.

    The model is loaded at the first call. All predictors of a process with equal settings share one copy, which is
    freed when the last of them is gone. Any thread may call; calls wait for each other. A predictor is pickled as its
    path and options.

    Args:
        model: Folder or address of a model, with its handler and tokenizer if it has some. Of a folder of versions, the
            one of the highest number counts.
        follow: Look for a higher version every 5 s, at a call. A version that cannot be loaded is logged, and the
            one before goes on.
        options: Keys of config.yaml in snake case, of model, images and filters, such as `thread_per_model=2`,
            `image_resize=(224, 224)` or `post_processing="topN(3)"`; and `secret`, the secret and salt of an encrypted
            model. `max_batch_size` limits the rows of a call of the model; by default it follows from their size.

    Raises:
        TypeError: If an option is unknown.
        ValueError: If the value of an option is of a wrong type.

    Example:
        >>> predictor = Predictor("model")
        >>> predictor({"x": np.ones((1000, 64), "float32")})["y"].shape
        (1000, 10)
    """

    def __init__(self, model: str | Path, *, follow: bool = False, **options: Any) -> None:
        self._settings = Settings.of(model, options)
        self._follow = follow
        self._reset()

    @classmethod
    def with_settings(cls, settings: Settings, follow: bool = False) -> Predictor:
        """Return the predictor of checked settings."""
        restored = cls.__new__(cls)
        restored._settings, restored._follow = settings, follow
        restored._reset()
        return restored

    def __call__(self, columns: Mapping[str, Any]) -> Columns:
        """Compute columns.

        Args:
            columns: For each input an array whose first axis has the records; or a list of numbers, texts, or encoded
                images as bytes. Rows with the values of another shape take that of the input.

        Returns:
            For each output an array with a row for each record. Outputs that are no arrays, or differ in shape, are
            in an array of objects.

        Raises:
            InvalidInput: If the columns do not fit each other, or a record does not fit the model.
            InferenceFailed: If the model or the handler fails on a record.
            ModelError: If the model cannot be loaded.
        """
        scored = self.scored(columns)
        for row, error in scored.errors.items():
            raise from_wire(error.code, f"row {row}: {error}") from error
        return scored.outputs

    def __reduce__(self) -> tuple[Any, ...]:
        return Predictor.with_settings, (self._settings, self._follow)

    def scored(self, columns: Mapping[str, Any]) -> Scored:
        """Compute columns, and return the errors of the records that have no outputs beside the outputs of the others.

        Raises:
            InvalidInput: If there are no columns, or their lengths differ.
            ModelError: If the model cannot be loaded.
        """
        with self._copy().used() as loaded:
            arrays = gathered(columns, loaded.servable.inputs)
            size = self._rows_of_a_call(arrays)
            takes_columns = self._takes_columns(loaded)
            parts, sizes = [], []
            for piece in pieces(arrays, size):
                parts.append((takes_columns and _whole(loaded, piece)) or collected(loaded.predict(rows(piece))))
                sizes.append(length(piece))
        return joined(parts, sizes) if parts else Scored()

    def records(self, records: Sequence[Mapping[str, Value]]) -> list[NamedOutputs | ServingError]:
        """Compute records that may differ in shape; one that fails leaves the others alone.

        Args:
            records: Inputs of each record by name; see `cluster_serving.job.predictor.Predictor.predict`.

        Returns:
            The outputs of each record by name, or its error.

        Raises:
            ModelError: If the model cannot be loaded.
        """
        with self._copy().used() as loaded:
            return loaded.predict(records)

    def report(self) -> SlotReport:
        """Return the description of the model, which is loaded if it is not yet: engine, inputs, outputs and more."""
        with self._copy().used() as loaded:
            return loaded.report()

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Inputs; empty if the model takes any inputs."""
        return self.report().inputs

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Outputs, as filters leave them; empty if nothing tells them."""
        return self.report().sent or self.report().outputs

    @property
    def version(self) -> str:
        """Number of the version that answers; empty if the folder has no versions."""
        self._copy()
        return self._version

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._current: Copy | None = None
        self._version = ""
        self._next_look = 0.0

    def _copy(self) -> Copy:
        if self._process != os.getpid():
            # This process was forked.
            self._reset()
        with self._lock:
            if self._current is None:
                path, self._version = newest(self._settings.path)
                self._current = copy_of(self._settings.at(path))
                self._next_look = time.monotonic() + _LOOK_S
            elif self._follow and time.monotonic() >= self._next_look:
                self._look()
            return self._current

    def _look(self) -> None:
        self._next_look = time.monotonic() + _LOOK_S
        try:
            path, version = newest(self._settings.path)
            if version == self._version:
                return
            found = copy_of(self._settings.at(path))
            with found.used():
                self._current, self._version = found, version
        except ModelError as error:
            log.warning("version %s of %s goes on: %s", self._version, self._settings.path, error)

    def _rows_of_a_call(self, columns: Columns) -> int:
        if self._settings.sized:
            return self._settings.batch.max_batch_size
        total = sum(array.nbytes for array in columns.values())
        row = max(1, total // max(1, length(columns)))
        return min(_MOST, max(_FEWEST, _CALL_BYTES // row))

    def _takes_columns(self, loaded: predictor.Predictor) -> bool:
        """Return True if several rows can be given as one record that is a batch: not to filters and handlers."""
        inputs = loaded.servable.inputs
        known = inputs is not None and all(spec.shape is not None for spec in inputs)
        return known and loaded.servable.is_direct and not self._settings.post_processing


def newest(path: str) -> tuple[str, str]:
    """Return folder and number of the highest version in a folder; the folder itself, and "", if it has none.

    Raises:
        ModelError: If the folder holds both versions and a model, or one version twice.
    """
    folders = version_folders(path)
    return (str(folders[max(folders)]), str(max(folders))) if folders else (path, "")


def _whole(loaded: predictor.Predictor, columns: Columns) -> Scored | None:
    """Return the outputs of rows that are computed together; None if they have to be computed as records."""
    (outcome,) = loaded.predict([columns])
    if isinstance(outcome, ServingError):
        return None
    if any(not hasattr(array, "shape") or array.shape[:1] != (length(columns),) for array in outcome.values()):
        return None
    return Scored(outcome)
