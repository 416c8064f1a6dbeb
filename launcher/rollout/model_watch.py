"""Detection of changes of a model's folder: which of them are finished, and new."""

SETTLED_S = 5.0
"""Seconds for which a folder must not change before its files count as complete."""


class ModelWatch:
    """Decision when the model of a job is to be loaded again, from looks at the fingerprint of its folder.

    A change is due once it has lasted for `SETTLED_S` seconds without another one. A fingerprint that is served, or was
    refused, is not due; without one that was refused, it is empty.
    """

    def __init__(self, served: str, refused: str = "") -> None:
        self.served = served
        self.refused = refused
        self.seen = served
        self._since = 0.0

    def is_due(self, seen: str, now: float) -> bool:
        """Return True if a model with this fingerprint is to be loaded; `now` is the time of the look in seconds."""
        if seen != self.seen:
            self.seen, self._since = seen, now
        if seen == self.served:
            # If the files that were refused come back, somebody has put them there again.
            self.refused = ""
            return False
        return seen != self.refused and now - self._since >= SETTLED_S

    def note(self, seen: str, is_served: bool) -> None:
        """Note that the model with this fingerprint is served now, or that it was refused."""
        if is_served:
            self.served, self.refused = seen, ""
        else:
            self.refused = seen
