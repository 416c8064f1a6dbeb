"""What a predictor is given: ways to compute the records of a folder, kinds of inputs, filters, the time limit.

A way is the user's own code, or a model of an engine: a further one is a function here, and its place in `_WAYS`. A
further kind of inputs is its place in `KINDS`. No other file of this folder imports the packages of these.
"""

from collections.abc import Callable
from functools import partial

from cluster_serving.job.conversion import Conversion
from cluster_serving.job.copies import Copies
from cluster_serving.job.handlers.handled import HandledModel
from cluster_serving.job.input_kind import InputKind
from cluster_serving.job.kinds.conversion import ByTable
from cluster_serving.job.kinds.image_input import ImageFiles
from cluster_serving.job.kinds.sparse import SparseTensors
from cluster_serving.job.models import load_lock
from cluster_serving.job.models.batched.sharing import Sharing
from cluster_serving.job.models.detect import HANDLER, ModelFiles, check
from cluster_serving.job.models.loading import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.job.postprocessing.filters import make_encoder
from cluster_serving.job.servable import Given, Servable, ServedModel, Way
from cluster_serving.job.timeouts.watched import Watched
from cluster_serving.protocol.figures.counts import Counts

KINDS: tuple[InputKind, ...] = (ImageFiles(), SparseTensors())
"""Kinds of inputs that a record may have beside arrays."""

CONVERSION: Conversion = ByTable()
"""Conversion of arrays and lists to the dtypes of a model."""


def way_of(given: Given) -> Way:
    """Return the way to compute a folder; neither the engine nor the user's code is imported yet.

    Raises:
        EngineMissing: See `detect.check`.
        ModelError: See `detect.check`.
    """
    files = check(given.model)
    way = next(way for take in _WAYS if (way := take(files, given)) is not None)

    def load() -> Servable:
        with load_lock.held(files.format.lock, given.model):
            return way.load()

    return way._replace(load=load)


def sharing_of(options: ModelOptions, counts: Counts) -> Sharing:
    """Return the watch over a model whose records share calls; see `Sharing`."""
    return Sharing(options, counts)


def copies_of(load: Callable[[], Servable], options: ModelOptions) -> Copies[Servable]:
    """Return the loaded copy of a servable; with a time limit, it is replaced when it hangs."""
    timeout = options.inference_timeout_s
    return Watched(load, timeout) if timeout else Copies(load)


def _handled(files: ModelFiles, given: Given) -> Way | None:
    if files.format != HANDLER:
        return None
    load = partial(
        HandledModel, given.model, given.secret, given.image, given.most, given.job, given.version, given.counts
    )
    return Way(lambda filters: HandledModel.encoding(make_encoder(filters, files.folder)), False, load)


def _served(files: ModelFiles, given: Given) -> Way:
    def load() -> Servable:
        return ServedModel(load_model(given.model, *given.secret, given.most), given.counts)

    return Way(lambda filters: ServedModel.encoding(make_encoder(filters, files.folder)), True, load)


_WAYS = (_handled, _served)
"""Each returns the way to compute a folder, or None for a folder of another kind; the first that does is taken."""
