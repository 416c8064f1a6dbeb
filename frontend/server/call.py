"""What is known of a gRPC call beside its message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Call:
    """One call.

    Attributes:
        timeout: Seconds until its deadline; None if it has none.
        model: Name of the model that it asked, for metrics; empty until that is known to exist.
    """

    timeout: float | None = None
    model: str = ""
