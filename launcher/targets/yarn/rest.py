"""A client of the part of the ResourceManager's REST API that the launcher uses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import httpx

from cluster_serving.launcher.errors import LaunchError

ENDED = ("FINISHED", "FAILED", "KILLED")
"""States of applications that have no containers any more."""

ACTIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
"""States of applications that have containers, or will have some."""


class YarnRest(AbstractContextManager["YarnRest"]):
    """A client of the active one of several ResourceManagers; use it in a `with` statement.

    Raises:
        LaunchError: From every method, if none answers as expected.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = list(urls)
        # A proxy of the environment is for the internet, not for a cluster.
        self._http = httpx.Client(timeout=10, trust_env=False, follow_redirects=True)

    def __exit__(self, *exc: object) -> None:
        self._http.close()

    @property
    def url(self) -> str:
        """URL of the ResourceManager that answered last."""
        return self._urls[0]

    def check(self) -> None:
        """Check that the ResourceManager answers."""
        self._get("info")

    def applications(
        self, states: Sequence[str], user: str = "", tag: str = "", kind: str = ""
    ) -> list[dict[str, Any]]:
        """Return the applications of some states, and of a user, a tag and a type, the latest first."""
        query = {"states": ",".join(states), "user": user, "applicationTags": tag, "applicationTypes": kind}
        found = (self._get("apps", **{key: value for key, value in query.items() if value})["apps"] or {}).get(
            "app", []
        )
        return sorted(found, key=lambda application: -application["startedTime"])

    def application(self, id: str) -> dict[str, Any] | None:
        """Return an application; None if the ResourceManager does not have it any more."""
        try:
            return dict(self._get(f"apps/{id}")["app"])
        except LookupError:
            return None

    def hosts(self) -> set[str]:
        """Return the names of the machines that run containers."""
        nodes = (self._get("nodes", states="RUNNING")["nodes"] or {}).get("node", [])
        return {str(node["nodeHostName"]) for node in nodes}

    def free(self) -> str:
        """Return the free resources of the cluster in words."""
        found = self._get("metrics")["clusterMetrics"]
        return (
            f"{found['availableMB']} of {found['totalMB']} MB and {found['availableVirtualCores']} of "
            f"{found['totalVirtualCores']} vcores are free"
        )

    def most_cores(self) -> int:
        """Return the virtual cores of the largest container that the cluster gives."""
        return int(self._request("POST", "apps/new-application")["maximum-resource-capability"]["vCores"])

    def _get(self, path: str, **query: str) -> Any:
        return self._request("GET", path, **query)

    def _request(self, method: str, path: str, **query: str) -> Any:
        problem: Exception | None = None
        for url in list(self._urls):
            try:
                answer = self._http.request(method, f"{url}/ws/v1/cluster/{path}", params=query)
                if answer.status_code == httpx.codes.NOT_FOUND:
                    raise LookupError(path)
                body = answer.raise_for_status().json()
                self._urls.sort(key=lambda other, active=url: other != active)  # type: ignore[misc]
                return body
            except (httpx.HTTPError, ValueError) as error:
                problem = error
        raise LaunchError(
            f"YARN's ResourceManager at {' or '.join(self._urls)} does not answer as expected: {problem}; check "
            "HADOOP_CONF_DIR"
        )
