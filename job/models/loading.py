"""Loading a model from its folder with the engine that the model needs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cluster_serving.job.models import forked, load_lock
from cluster_serving.job.models.base import ROUGH, Model, TensorSpec, cause
from cluster_serving.job.models.batched.axes import Whole
from cluster_serving.job.models.batched.kept import KeptProof
from cluster_serving.job.models.batched.model import BatchedModel
from cluster_serving.job.models.content import Content
from cluster_serving.job.models.detect import ModelFiles, check, check_engine, detect
from cluster_serving.job.models.devices import device_of
from cluster_serving.job.models.encryption import decrypt_folder
from cluster_serving.job.models.formats import imported
from cluster_serving.job.models.text.model import with_text
from cluster_serving.job.options import CPU, MOST_ROWS, ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.signature import DTYPES


def load_model(options: ModelOptions, secret: str = "", salt: str = "", most: int = MOST_ROWS) -> Model:
    """Load one copy of the model. Only the engine that the model needs is imported.

    `secret` and `salt` decrypt the files if `options.encrypted`; they are not used otherwise. Calls have at most so
    many (`most`) records.

    Raises:
        EngineMissing: If the engine is not installed.
        ModelError: If there is not exactly one model, or the model cannot be decrypted or loaded. Also if the model
            lacks an input or output that the options name, or the engine the device.
    """
    files = check(options)

    def again() -> Model:
        with decrypted(options, files.folder, (secret, salt)) as folder, load_lock.held(files.format.lock, options):
            return load_engine(detect(folder), options)

    content = Content(options)
    # What is proven of large calls is not proven again where a layout has smaller ones.
    most = max(most, MOST_ROWS)
    with decrypted(options, files.folder, (secret, salt)) as folder:
        plain = detect(folder)
        engine = load_engine(plain, options)
        try:
            kept = KeptProof(content, replace(options, device=engine.device), plain.format.package, most)
            return served(engine, plain, options, most, again, kept)
        except BaseException:
            engine.close()
            raise


@contextmanager
def decrypted(options: ModelOptions, folder: Path, secret: tuple[str, str]) -> Iterator[Path]:
    """Provide the folder of a model, or one with the decrypted files if the options say so; errors name the former."""
    if not options.encrypted:
        yield folder
        return
    with decrypt_folder(folder, *secret) as plain:
        try:
            yield plain
        except ModelError as error:
            raise ModelError(str(error).replace(str(plain), str(folder))) from error


def load_engine(files: ModelFiles, options: ModelOptions) -> Model:
    """Load a model that computes its own tensors, wherever they have the batch; see `load_model`."""
    try:
        check_engine(files.format, str(files.folder))
        options = replace(options, path=str(files.folder), device=device_of(files.format, options))
        forked.check(files.format.engine)
        model: Model = imported(files.format.loader)(files, options)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{files.format.engine} cannot load {files.paths[0]}: {cause(error)}") from error
    model.device = options.device
    if model.has_pool:
        forked.use(model.engine)
    if model.device != CPU:
        model.tolerance = max(model.tolerance, ROUGH)
    if problem := _problem(model) or _not_a_table(model, options):
        model.close()
        raise ModelError(f"the model {files.paths[0]} cannot be served: {problem}")
    return model


def served(
    engine: Model,
    files: ModelFiles,
    options: ModelOptions,
    most: int,
    renew: Callable[[], Model] | None = None,
    kept: KeptProof | None = None,
) -> Model:
    """Return a model whose batch comes first, and that reads texts, pads and pools as the options want it.

    See `BatchedModel` for the arguments. `renew` is for an engine's model to which nothing else refers.
    """
    model = BatchedModel(engine, most, renew=renew, whole=options.whole_inputs, kept=kept)
    if problem := _contradiction(model, options.input_shapes) or _unknown(engine, options.whole_inputs):
        raise ModelError(f"the model {files.paths[0]} cannot be served: {problem}")
    return with_text(model, files.folder, options)


def _problem(model: Model) -> str | None:
    if not model.inputs:
        return "it has no inputs"
    for spec in model.inputs:
        if not _has_counterpart(spec):
            return f"input {spec.name!r} is of type {spec.dtype}, which has no counterpart in numpy"
    others = [spec for spec in model.outputs if not _has_counterpart(spec)]
    if others:
        rest = ", ".join(spec.name for spec in model.outputs if _has_counterpart(spec))
        remedy = f"; outputs: [{rest}] in config.yaml serves the rest" if rest else ""
        return f"output {others[0].name!r} is of type {others[0].dtype}, which has no counterpart in numpy{remedy}"
    return None


def _not_a_table(model: Model, options: ModelOptions) -> str | None:
    if options.missing_value is None or model.takes_missing:
        return None
    return f"missingValue is for models of tables, and {model.describe()}"


def _has_counterpart(spec: TensorSpec) -> bool:
    return spec.dtype in {*DTYPES, "str", ""}


def _contradiction(model: Model, shapes: Sequence[Sequence[int]]) -> str | None:
    """Return how the configured shapes of records differ from those of the model, or None."""
    if not shapes:
        return None
    if len(shapes) != len(model.inputs):
        return f"inputShapes has {len(shapes)} shapes, and {model.describe()}"
    for spec, shape in zip(model.inputs, shapes, strict=True):
        known = spec.record_shape
        if known is not None and not _agree(shape, known):
            return f"inputShapes has {list(shape)} for the input {spec}, whose first dimension is the batch"
    return None


def _unknown(model: Model, whole: Whole) -> str | None:
    names = {spec.name for spec in model.inputs}
    if isinstance(whole, tuple) and (other := next((name for name in whole if name not in names), None)):
        return f"wholeInputs names the input {other!r}, and {model.describe()}"
    return None


def _agree(configured: Sequence[int], known: Sequence[int | None]) -> bool:
    if len(configured) != len(known):
        return False
    return all(size is None or own < 0 or own == size for own, size in zip(configured, known, strict=True))
