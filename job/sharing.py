"""Whether the records of a slot's model share calls: what its watch has found, and what other slots have."""

from cluster_serving.job.models.batched.watch import Watch
from cluster_serving.job.models.content import Content


class Sharing:
    """What the reports of a slot tell of its watch, and tell its watch; see `connectors.slot.reporting.Sharing`."""

    def __init__(self, watch: Watch, content: Content) -> None:
        self._watch = watch
        self._content = content

    @property
    def ended(self) -> str:
        """Reason for which records share calls no more; empty while they may."""
        return self._watch.ended

    @property
    def content(self) -> str:
        """Digest of the model; empty while it is not known."""
        return self._content.digest_soon()

    def end(self, reason: str) -> None:
        """End shared calls, as another slot has found a reason."""
        self._watch.end(reason)
