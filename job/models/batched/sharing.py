"""Whether the records of a slot's model share calls: what its watch has found, and what other slots have."""

from cluster_serving.job.models.batched.watch import Watch
from cluster_serving.job.models.content import Content
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.figures.counts import Counts


class Sharing:
    """The watch over a slot's model, and what the reports of slots tell of it (`connectors.slot.reporting.Sharing`).

    Args:
        options: Options of the model.
        counts: Place of figures.

    Raises:
        EngineMissing: See `Content`.
        ModelError: See `Content`.
    """

    def __init__(self, options: ModelOptions, counts: Counts) -> None:
        self.watch = Watch(counts)
        self._content = Content(options)

    @property
    def ended(self) -> str:
        """Reason for which records share calls no more; empty while they may."""
        return self.watch.ended

    @property
    def content(self) -> str:
        """Digest of the model; empty while it is not known."""
        return self._content.digest_soon()

    def digest(self) -> str:
        """Return the digest of the model; see `Content.digest`."""
        return self._content.digest()

    def end(self, reason: str) -> None:
        """End shared calls, as another slot has found a reason."""
        self.watch.end(reason)
