"""The target `yarn-session`: a Flink session cluster that somebody has started on YARN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.targets.session import Session
from cluster_serving.launcher.targets.yarn import application as yarn
from cluster_serving.launcher.targets.yarn.hadoop import Hadoop
from cluster_serving.launcher.targets.yarn.keys import YarnKeys, of
from cluster_serving.launcher.targets.yarn.rest import YarnRest

_KIND = "Apache Flink"


class YarnSession(Session):
    """The session of `flink.applicationId`, or the only one of this user. Its REST endpoint is where YARN put it."""

    keys = YarnKeys

    def __init__(self, config: Config) -> None:
        self._hadoop = Hadoop()
        self._problem: LaunchError | None = None
        self._application = ""
        try:
            self._application, url = _endpoint(self._hadoop, of(config).flink_application_id)
            config = config.model_copy(update={"flink_rest_url": url})
        except LaunchError as error:
            # Told when the session is used: a shutdown stops the rest all the same.
            self._problem = error
        super().__init__(config)

    def flink(self) -> FlinkRest:
        """Return a client for the jobs of the session."""
        self._check_found()
        return _SessionRest(self.config.flink_rest_url, self._application)

    def check(self) -> None:
        """Check that the session answers, and that YARN's nodes can reach Redis."""
        self._check_found()
        yarn.check(self.config, self._hadoop)
        super().check()

    def is_up(self) -> bool:
        """Return True if there is a session that answers."""
        return self._problem is None and super().is_up()

    @contextmanager
    def slots(self, needed: int) -> Iterator[None]:
        """Leave slots to Flink, which starts TaskManagers when a job needs them."""
        yield

    def _check_found(self) -> None:
        if self._problem:
            raise self._problem


class _SessionRest(FlinkRest):
    """A client of a session, whose endpoint may move to another node."""

    def __init__(self, url: str, application: str) -> None:
        super().__init__(url)
        self._application = application

    @property
    def place(self) -> str:
        return f"application {self._application} of YARN"


def _endpoint(hadoop: Hadoop, chosen: str) -> tuple[str, str]:
    """Return the id of the session, and the URL of its REST endpoint.

    Raises:
        LaunchError: If there is no such session, or there are several.
    """
    with YarnRest(hadoop.resource_managers()) as rest:
        running = rest.applications(("RUNNING",), "" if chosen else hadoop.user, kind=_KIND)
        found = [raw for raw in running if yarn.TAG not in yarn.tags(raw) and chosen in ("", raw["id"])]
        if len(found) != 1:
            names = ", ".join(f"{raw['id']} ({raw['name']})" for raw in found)
            what = f"application {chosen} (flink.applicationId)" if chosen else f"session of user {hadoop.user}"
            raise LaunchError(
                f"YARN at {rest.url} runs several Flink sessions: {names}; set flink.applicationId to one"
                if found
                else f"YARN at {rest.url} runs no Flink {what}; start a session with Flink's bin/yarn-session.sh -d, "
                "or set flink.target to yarn-application"
            )
        return found[0]["id"], f"http://{found[0]['amRPCAddress']}"
