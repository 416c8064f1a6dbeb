"""The target `remote`: a Flink session cluster at `flinkRestUrl`."""

from __future__ import annotations

from cluster_serving.launcher.targets.base import check_redis
from cluster_serving.launcher.targets.session import Session


class Remote(Session):
    """A Flink cluster elsewhere."""

    def check(self) -> None:
        """Check that the cluster answers, and that its machines can reach Redis."""
        super().check()
        if not self.address.is_local:
            check_redis(self.config, f"the machines of Flink at {self.address}")
