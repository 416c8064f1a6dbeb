"""Secret of an encrypted model, from the Redis hash `model_secured`, as in the original."""

import time

import redis

from cluster_serving.job.slot_part import SlotPart
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.keys import SECRET_FIELDS, JobKeys, missing_secret

_INTERVAL = 1.0


SECRET_TIMEOUT = 60.0
"""Seconds in which an operator has to store the secret."""


class Secret(SlotPart):
    """The secret of the model, if its files are encrypted."""

    def before(self) -> None:
        """Wait for the secret."""
        slot = self.slot
        if slot.options.model.encrypted:
            # A slot that waits cannot be cancelled, and the launcher cancels the job after the first attempt.
            timeout = SECRET_TIMEOUT if slot.first_attempt else 0.0
            slot.reporter.secret = wait_for_secret(slot.client, slot.options.redis.job, timeout)


def wait_for_secret(client: redis.Redis, job: str, timeout: float) -> tuple[str, str]:
    """Wait up to `timeout` seconds until an operator has stored secret and salt, and return both.

    Raises:
        ModelError: If secret and salt are not stored in time; the message has the command that stores them.
    """
    deadline = time.monotonic() + timeout
    while True:
        # redis-py types its commands as if they might be awaitable.
        secret, salt = client.hmget(JobKeys(job).secret, SECRET_FIELDS)  # type: ignore[misc]
        if secret and salt:
            return secret.decode(), salt.decode()
        if time.monotonic() >= deadline:
            raise ModelError(missing_secret(job))
        time.sleep(_INTERVAL)
