"""Where the secret of encrypted models is kept."""

from __future__ import annotations

MODEL_SECRET_KEY = "model_secured"  # noqa: S105 - the name of a key
"""Hash with the fields `secret` and `salt` of encrypted models; it is for all jobs of a Redis, as in the original."""


def secret_key(job: str) -> str:
    """The hash that a job reads.

    In a Redis Cluster it has to lie with the job's keys: a job whose name has braces has its own.
    """
    return f"{job}:{MODEL_SECRET_KEY}" if job.startswith("{") else MODEL_SECRET_KEY


def missing(job: str) -> str:
    """What is wrong while nobody has stored it, and what to do."""
    return f"the model is encrypted, and Redis has no secret for it: HSET {secret_key(job)} secret <secret> salt <salt>"
