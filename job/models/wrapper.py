"""Models around models, such as those that pad or read texts."""

from collections.abc import Sequence

from cluster_serving.job.models.base import CallWatch, Model
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.inputs import Array


class Wrapper(Model):
    """Base of a model around another one, which is closed with it; a derived class has its own `predict`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.engine, self.layout, self.device = model.engine, model.layout, model.device
        self.inputs, self.outputs = model.inputs, model.outputs

    @property
    def one_by_one(self) -> str:
        """See `Model.one_by_one`."""
        return self._model.one_by_one

    def close(self) -> None:
        """See `Model.close`."""
        self._model.close()

    def count_into(self, counts: Counts) -> None:
        """See `Model.count_into`."""
        super().count_into(counts)
        self._model.count_into(counts)

    def watch_with(self, watch: CallWatch) -> None:
        """See `Model.watch_with`."""
        self._model.watch_with(watch)

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        return self.predict(inputs)
