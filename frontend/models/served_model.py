"""A job as the clients of the front end see it."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_serving.frontend.models.servables import VERSION
from cluster_serving.protocol.slots import SlotReport


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A job as its clients see it.

    Attributes:
        name: Name of the model.
        reports: What its slots say, by index.
        version: Its version.
        job: `jobName`.
        silent: No slot of it has given a sign of life for a while.
    """

    name: str
    reports: tuple[SlotReport, ...]
    version: str = VERSION
    job: str = ""
    silent: bool = False

    @property
    def loaded(self) -> SlotReport | None:
        """Report of a slot that has loaded the model; None if there is none."""
        return next((report for report in self.reports if report.state == "ready"), None)

    @property
    def described(self) -> SlotReport | None:
        """What the model expects, also while its job is stopped; None if that is not known."""
        return self.loaded or next((report for report in self.reports if report.state == "stopped"), None)

    @property
    def state(self) -> str:
        """`ready`, `loading`, `failed`, `stopped`, or `unknown` if no slot has ever said anything."""
        if self.loaded:
            return "stopped" if self.silent else "ready"
        return next((report.state for report in self.reports), "unknown")
