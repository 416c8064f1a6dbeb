"""Where the TaskManagers of a Flink cluster are."""

from __future__ import annotations

import httpx

_TIMEOUT_S = 10


def taskmanager_ports(url: str) -> list[int]:
    """Ports that the TaskManagers of a Flink cluster listen on.

    Args:
        url: `http://host:port` of Flink's REST API.

    Raises:
        httpx.HTTPError: Flink does not answer.
    """
    address = url if "://" in url else f"http://{url}"
    found = httpx.get(f"{address}/taskmanagers", timeout=_TIMEOUT_S, trust_env=False).raise_for_status().json()
    # Such as pekko.tcp://flink@localhost:41871/user/rpc/taskmanager_0
    paths = [manager["path"] for manager in found["taskmanagers"]]
    return [int(path.partition("@")[2].partition("/")[0].rpartition(":")[2]) for path in paths]
