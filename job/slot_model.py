"""The model of a slot: it is loaded and watched, and its state is reported."""

from collections.abc import Sequence
from contextlib import ExitStack

import redis

from cluster_serving.connectors.slot.redis import connect
from cluster_serving.connectors.slot.reporting import SlotReporter
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.job.options import JobOptions
from cluster_serving.job.predicting import Predicting
from cluster_serving.job.slot_part import LoadingSlot, MakePart
from cluster_serving.job.ways import sharing_of
from cluster_serving.protocol.errors import ModelError, ServingError
from cluster_serving.protocol.figures.metrics import SHARING_ENDED


class SlotModel:
    """The model of one slot, ready for requests; if it cannot be loaded, the launcher shows the reported error.

    Args:
        options: Options of the job.
        shared: What the slot shares.
        parts: What makes the parts of the slot, in their order.
        first_attempt: False if Flink has started this slot again.

    Attributes:
        client: Connection to the job's Redis.
        predictor: The model.

    Raises:
        Exception: If the model cannot be loaded; the error has been reported.
    """

    def __init__(
        self, options: JobOptions, shared: SharedSlot, parts: Sequence[MakePart] = (), first_attempt: bool = True
    ) -> None:
        self._options = options
        # The slot shares its counts for as long as one of its parts holds it.
        self._shared = shared
        with ExitStack() as opened:
            self.client: redis.Redis = opened.enter_context(connect(options.redis))
            self._reporter = SlotReporter(self.client, options.redis, options.submission, shared.index)
            self._reporter.loading()
            opened.callback(self._reporter.close)
            slot = LoadingSlot(self.client, options, shared, self._reporter, first_attempt)
            own = [make(slot) for make in parts]
            try:
                for part in own:
                    part.before()
                self.predictor = self._load()
            except Exception as error:
                known = load_error(error)
                self._reporter.failed(known.code, options.model.as_configured(str(known)))
                raise
            opened.callback(self.predictor.close)
            for part in own:
                part.after(self.predictor)
            self._report()
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Release the model, and end the reports."""
        self._opened.close()

    def report_changes(self) -> None:
        """Report what requests have told of the model: names of outputs, and whether records share a call."""
        if self.predictor.learned != self._reported:
            self._report()

    def check(self, computed_s: float) -> None:
        """Let the watch compute a record again, once the answers of its batch are written.

        `computed_s` is for how long batches have been computed so far.
        """
        watch = self._watch
        watch.computed_s = computed_s
        ended = watch.ended
        self.predictor.check()
        if watch.ended and not ended:
            self._reporter.tell(f"computes one record a call from now on: {watch.ended}")
            self._report()

    def _load(self) -> Predicting:
        self._watch_over()
        options, counts, watch = self._options.in_slot(self._shared.index), self._shared.counts, self._watch
        predictor = Predicting.of(options, self._reporter.secret, counts, watch)
        counts.gauges = {SHARING_ENDED.name: lambda: int(bool(watch.ended))}
        return predictor

    def _watch_over(self) -> None:
        """Watch over the model to be loaded, with what an earlier watch has found."""
        sharing = sharing_of(self._options.model, self._shared.counts)
        marks = self._reporter.marks()
        if marks and (reason := marks.get(self._options.submission) or marks.get(sharing.digest())):
            sharing.end(reason)
        self._reporter.sharing = sharing
        self._watch = sharing.watch

    def _report(self) -> None:
        self._reported = self.predictor.learned
        self._reporter.ready(self.predictor.report())


def load_error(error: Exception) -> ServingError:
    """Return the error of a model that cannot be loaded, as clients and operators see it."""
    return error if isinstance(error, ServingError) else ModelError(f"{type(error).__name__}: {error}")
