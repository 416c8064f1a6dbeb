"""The target `remote`: a Flink session cluster at `flinkRestUrl`."""

from __future__ import annotations

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.targets.session import Session


class Remote(Session):
    """A Flink cluster elsewhere."""

    def check(self) -> None:
        """Check that the cluster answers, and that its machines can reach Redis."""
        super().check()
        redis, flink = self.config.redis_address, self.config.flink_address
        if redis.is_local and not flink.is_local:
            raise LaunchError(
                f"redisUrl is {self.config.redis_shown}, which the machines of Flink at {flink} cannot reach; set it "
                "to an address of this machine in their network, or to a Redis elsewhere"
            )
