"""A handler with the models that it calls, as one task slot has it: records become outputs."""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from cluster_serving.job.batch import Arrays, BatchMemory, SuspectItem, attempt, gather, isolate, search
from cluster_serving.job.computation import Steps
from cluster_serving.job.encoding import Encoding
from cluster_serving.job.handlers import declared
from cluster_serving.job.handlers.encoding import HandledEncoding
from cluster_serving.job.handlers.engine import Engine
from cluster_serving.job.handlers.failure import FAILURES, HandlerFailed, error_of
from cluster_serving.job.handlers.generated import Generated
from cluster_serving.job.handlers.handler import METHODS, Context, method
from cluster_serving.job.handlers.load import Code
from cluster_serving.job.handlers.metrics import HandlerMetrics
from cluster_serving.job.handlers.records import PLAIN, Record, groups, kind, named, split
from cluster_serving.job.handlers.running import Running, run
from cluster_serving.job.models import load_lock
from cluster_serving.job.models.base import TRIAL_ERRORS, Model, StartedRecord, TensorSpec, dummy_inputs
from cluster_serving.job.models.detect import ModelFiles, detect, select
from cluster_serving.job.models.devices import device_of_handler
from cluster_serving.job.models.loading import decrypted, load_engine, served
from cluster_serving.job.models.location import locate
from cluster_serving.job.models.text import tokenizer
from cluster_serving.job.models.token_counter import TokenCounter
from cluster_serving.job.options import NO_TOKENIZER, ImageOptions, ModelOptions
from cluster_serving.job.servable import Caller, Servable
from cluster_serving.protocol.errors import ModelError, ServingError
from cluster_serving.protocol.figures.counts import Counts

_MAX_MEMORIES = 64

log = logging.getLogger(__name__)


class HandledModel(Servable):
    """A handler that has loaded what it needs.

    Raises:
        ModelError: If the handler cannot be imported, or its `load` raises an exception.
    """

    encoding = HandledEncoding

    def __init__(
        self,
        options: ModelOptions,
        secret: tuple[str, str],
        image: ImageOptions,
        max_batch_size: int,
        job: str,
        version: str,
        counts: Counts,
    ) -> None:
        self._options = options
        self._most = max_batch_size
        self._engines: dict[tuple[Path, ...], Engine] = {}
        self._own_device = ""
        self._memories: dict[str, BatchMemory] = {}
        self._only: Engine | None = None
        with ExitStack() as undo:
            undo.callback(self._close_engines)
            with decrypted(options, locate(options.path), secret) as folder:
                code = Code(folder, options.handler)
                undo.callback(code.close)
                context = Context(
                    folder,
                    options.thread_per_model,
                    max_batch_size,
                    job,
                    version,
                    HandlerMetrics(counts),
                    partial(self._open, folder),
                    partial(tokenizer.load, folder, options.max_tokens),
                    self._choose_device,
                )
                self._load(code, context, channels=1 if image.color == "GRAY" else 3)
                self.counter = self._counter_of(folder)
            undo.callback(self._unload)
            self._undo = undo.pop_all()
        self.engine = f"Python handler ({code.name})"
        self._warm_up()

    @property
    def outputs(self) -> list[TensorSpec]:
        """See `Servable.outputs`."""
        if self._outputs is None and self._postprocess is None:
            return super().outputs
        return self._outputs or []

    @property
    def device(self) -> str:
        """Devices of the models, and of the handler if it has asked for its own."""
        devices = [*(engine.model.device for engine in self._engines.values()), self._own_device]
        return ",".join(dict.fromkeys(filter(None, devices)))

    def generated(self, call: Caller, encoding: Encoding) -> Generated | None:
        """See `Servable.generated`; a handler generates if its `predict` is a generator."""
        return Generated(call, encoding) if self.generates else None

    def steps(
        self,
        call: Caller,
        names: Sequence[str],
        records: Sequence[Arrays],
        batched: bool,
        failure: ServingError | None = None,
    ) -> Steps[Any]:
        """See `Servable.steps`; the rows of a batch are records for the handler, and it fails as a whole."""

        def run(records: Sequence[Record]) -> list[Any]:
            return call(methodcaller("compute", records), len(records))

        items = named(names, records)
        return _by_rows(run, items) if batched else search(run, items, failure)

    def compute(self, records: Sequence[Record]) -> list[Any]:
        """Return for each record its outputs, its error, or a `SuspectItem`: its batch has failed.

        Records of suspects are prepared already, and may be given again.
        """
        results: list[Any] = [*records]
        if self._preprocess is not None:
            results = [dict(record) if type(record) is _Prepared else self.preprocess(record) for record in records]
        predict = self._predict_whole if self.generates else self._predict
        for indices in groups(results, self._padded):
            computed: list[Any] = attempt(predict, [cast(Record, results[index]) for index in indices])
            for index, result in zip(indices, computed, strict=True):
                if type(result) is dict and not self.generates:
                    result = self.postprocess(result)
                elif isinstance(result, SuspectItem) and self._preprocess is not None:
                    result = SuspectItem(result.error, _Prepared(result.item))
                results[index] = result
        return results

    def generate(self, records: Sequence[Record]) -> Running:
        """Begin to compute records that can share a batch (`records.groups`), in pieces."""
        made = self._predict_batch(self._batch(records))
        return Running(made, len(records), self.postprocess, declared.nothing(self._outputs))

    def start(self, names: Sequence[str], record: Arrays) -> StartedRecord:
        """Start to compute a record in the only model; see `Servable.start`."""
        prepared = self.preprocess(named(names, [record])[0])
        if isinstance(prepared, ServingError):
            raise prepared
        return cast(Engine, self._only).start(prepared, checked=self.is_direct)

    def finish(self, outputs: Sequence[Any]) -> Record | ServingError:
        """See `Servable.finish`."""
        return self.postprocess(cast(Engine, self._only).named(outputs))

    def preprocess(self, record: Record) -> Record | ServingError:
        """Call the handler's `preprocess`; return its error if it fails."""
        if self._preprocess is None:
            return record
        try:
            prepared = self._preprocess(record)
            return prepared if type(prepared) is dict else _checked(prepared, "preprocess")
        except FAILURES as error:
            return error_of(error, "preprocess")

    def postprocess(self, result: Record) -> Record | ServingError:
        """Call the handler's `postprocess`; return its error if it fails."""
        if self._postprocess is None:
            return result
        try:
            outputs = self._postprocess(result)
            return outputs if type(outputs) is dict else _checked(outputs, "postprocess")
        except FAILURES as error:
            return error_of(error, "postprocess")

    def close(self) -> None:
        """Call the handler's `unload`, and free the models."""
        self._undo.close()

    def _load(self, code: Code, context: Context, channels: int) -> None:
        kind = code.kind
        where = f"of the handler {code.name} in {self._options.path}"
        try:
            handler: Any = kind()
            if method(kind, "load"):
                handler.load(context)
        except ModelError:
            raise
        except FAILURES as error:
            raise ModelError(f"the method load {where} failed: {type(error).__name__}: {error}") from error
        methods: list[Any] = [getattr(handler, name) if method(kind, name) else None for name in METHODS[1:]]
        self._preprocess, self._predict_batch, self._postprocess, self._unload_handler = methods
        self.generates = inspect.isgeneratorfunction(self._predict_batch)
        if self._predict_batch is None:
            self._only = Engine(context.load().batched(), "the model")
        self.model = None if self._only is None else self._only.model
        self._padded = frozenset() if self.model is None else self.model.padded
        takes, gives = getattr(kind, "inputs", None), getattr(kind, "outputs", None)
        self.is_direct = self._only is not None and self._preprocess is None and takes is None
        self.layout = "HWC"
        self.inputs = None
        if takes is not None:
            self.inputs = declared.specs(takes, f"inputs {where}", channels)
        elif self._only is not None and self.is_direct:
            self.inputs, self.layout = self._only.inputs, self._only.model.layout
        self._outputs = None if gives is None else declared.specs(gives, f"outputs {where}", channels)

    def _counter_of(self, folder: Path) -> TokenCounter | None:
        """Return the counter of the tokens of texts, with a tokenizer of its own: the handler may change another one.

        A handler may also leave its `tokenizer.json` unused, so one that cannot be read is no reason not to start.
        """
        options = self._options
        takes_text = any(spec.dtype == "str" for spec in self.inputs or ())
        if takes_text and tokenizer.is_used(folder, options.tokenizer):
            try:
                return TokenCounter(tokenizer.load(folder, options.max_tokens), options.max_text_length)
            except ModelError as error:
                log.warning("tokens of texts are not counted: %s", error)
        return None

    def _open(
        self,
        folder: Path,
        name: str,
        input_shapes: Sequence[Sequence[int]],
        text: bool,
        pooling: Literal["", "mean", "cls", "last"],
        normalize: bool,
    ) -> Engine:
        """See `Context.load`."""
        files = select(folder, name) if name else detect(folder)
        if files.paths not in self._engines:
            options = self._options
            if name:
                options = replace(
                    options,
                    inputs=(),
                    outputs=(),
                    input_shapes=tuple(map(tuple, input_shapes)),
                    padding=(),
                    tokenizer="" if text else NO_TOKENIZER,
                    pooling=pooling,
                    normalize=normalize,
                )
            with load_lock.held(files.format.lock, options):
                engine = load_engine(files, options)
                try:
                    self._engines[files.paths] = _engine(engine, files, options, self._most)
                except BaseException:
                    engine.close()
                    raise
        return self._engines[files.paths]

    def _choose_device(self) -> str:
        """See `Context.device`."""
        self._own_device = self._own_device or device_of_handler(self._options)
        return self._own_device

    def _warm_up(self) -> None:
        """Compute a record of zeros, where the shapes are known, so that the first request does not pay for it."""
        zeros = dummy_inputs(self.inputs, 1) if self.inputs else None
        if zeros is None or any(None in (spec.record_shape or ()) or spec.dtype == "str" for spec in self.inputs or ()):
            return
        record = {spec.name: array[0] for spec, array in zip(self.inputs or (), zeros, strict=True)}
        result = self._first_piece(record) if self.generates else self.compute([record])[0]
        if isinstance(result, HandlerFailed):
            # Zeros need not be a possible request, so this is no reason not to start.
            log.warning("%s, on inputs of zeros\n%s", result, result.traceback)

    def _first_piece(self, record: Record) -> object:
        """Return the first piece of a record, or its error: an answer may have no end."""
        prepared = self.preprocess(record)
        if isinstance(prepared, ServingError):
            return prepared
        running = self.generate([prepared])
        try:
            return running.advance()
        except ServingError as error:
            return error
        finally:
            running.close()

    def _predict(self, records: Sequence[Record]) -> list[Any]:
        batch = self._batch(records)
        if self._only is not None:
            return split(self._only(batch, checked=self.is_direct), len(records))
        try:
            results = split(self._predict_batch(batch), len(records))
        except FAILURES as error:
            raise error_of(error, "predict") from error
        return [error_of(one, "predict") if isinstance(one, Exception) else one for one in results]

    def _predict_whole(self, records: Sequence[Record]) -> list[Any]:
        return run(self.generate(records))

    def _batch(self, records: Sequence[Record]) -> dict[str, Any]:
        return {name: self._joined(name, [record[name] for record in records]) for name in records[0]}

    def _joined(self, name: str, values: list[Any]) -> Any:
        first = values[0]
        if isinstance(first, np.ndarray):
            if name in self._padded:
                return gather(values)
            return self._memory(name).join(values, already_batched=False)
        if isinstance(first, PLAIN):
            return np.asarray(values)
        return np.fromiter(values, object)

    def _memory(self, name: str) -> BatchMemory:
        memory = self._memories.get(name)
        if memory is None:
            specs = {spec.name: spec for spec in self.inputs or ()} if self.is_direct else {}
            memory = BatchMemory(specs[name].numpy_dtype if name in specs else None)
            # Clients choose the names of inputs that are not declared.
            if len(self._memories) < _MAX_MEMORIES:
                self._memories[name] = memory
        return memory

    def _unload(self) -> None:
        if self._unload_handler is not None:
            try:
                self._unload_handler()
            except Exception:
                log.exception("the handler failed in unload")

    def _close_engines(self) -> None:
        for engine in self._engines.values():
            engine.model.close()


def _by_rows(run: Callable[[Sequence[Record]], list[Any]], batches: Sequence[Record]) -> Steps[Any]:
    for index, batch in enumerate(batches):
        count = len(next(iter(batch.values())))
        results = isolate(run, [{name: values[row] for name, values in batch.items()} for row in range(count)])
        yield {index: next((result for result in results if isinstance(result, ServingError)), results)}


class _Prepared(dict[str, Any]):
    """A record that `preprocess` has returned."""


def _engine(model: Model, files: ModelFiles, options: ModelOptions, most: int) -> Engine:
    """Return a model as handlers call it, warmed up."""
    name = files.paths[0].name
    batched = partial(served, model, files, options, most)
    reads_texts = tokenizer.is_used(files.folder, options.tokenizer)
    takes_records = bool(reads_texts or options.padding or options.pooling or options.normalize)
    if takes_records:
        model = batched()
    try:
        if not model.anywhere:
            model.warm_up(1 if takes_records else None)
    except TRIAL_ERRORS as error:
        raise ModelError(f"the model {name} fails on a batch of zeros: {error}") from error
    return Engine(model, name, None if takes_records else batched)


def _checked(value: Any, step: str) -> Record:
    if not isinstance(value, Mapping):
        raise TypeError(f"{step} returned {kind(value)}; expected a dict of names and values")
    return dict(value)
