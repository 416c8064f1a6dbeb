"""The rights of the slot in Redis: one that is missing is named before the model is loaded."""

from cluster_serving.connectors.slot import rights
from cluster_serving.job.slot_part import SlotPart


class Rights(SlotPart):
    """Check of the rights; raises `RedisUnavailable` for a missing one."""

    def before(self) -> None:
        """Try the commands that the slot needs."""
        rights.check(self.slot.client, self.slot.options.redis.queue.job)
