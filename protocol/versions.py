"""Versions of a model: the one that answers a request."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cluster_serving.protocol.errors import VersionNotFound

FIRST = "1"
"""Version of a model without numbered folders until its first update."""


def choose(wanted: str, served: Mapping[str, bool]) -> str | None:
    """Return the version that answers requests for the version `wanted`; None if there is none.

    Models without numbered folders get a new number with each update, which their clients need not know. So if no
    version is the first one, such a model answers requests for the first.

    Args:
        wanted: Version that a request names.
        served: For each version that is served, True if its number is that of the model's folder.
    """
    if wanted in served:
        return wanted
    unnumbered = (version for version, numbered in served.items() if not numbered)
    return next(unnumbered, None) if wanted == FIRST else None


def not_served(model: str, wanted: str, served: Collection[str]) -> VersionNotFound:
    """Return the error for a request that names a version of a model, or job, that is not served."""
    known = ", ".join(served) or "none"
    return VersionNotFound(f"version {wanted[:32]!r} of {model!r} is not served; served are: {known}")
