"""Jobs of a Redis that run in another Flink than that of the command."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.services import flink_cluster, state
from cluster_serving.launcher.services.flink_rest import Flink, FlinkRest, Job, at_hand, place_of

_ANSWERS_WITHIN = 3.0
_UNNAMED = "another Flink"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A job whose Flink is not that of the command.

    Attributes:
        place: Its Flink, as in `Generation.flink`, or in words if Redis does not tell.
        answers: True if slots of the job give heartbeats.
        is_asked: True if its Flink has answered.
        url: REST endpoint of that Flink; empty if it did not answer.
        jobs: What that Flink has of the job, one for each generation; empty if it did not answer.
    """

    place: str
    answers: bool
    is_asked: bool = False
    url: str = ""
    jobs: tuple[Job, ...] = ()

    @property
    def runs(self) -> bool:
        """True if the job runs there for certain."""
        return bool(self.jobs) or (self.answers and not self.is_asked)

    @property
    def state(self) -> str:
        """The state in Flink's words; `LOST` if its Flink does not have it, `UNKNOWN` if nothing tells."""
        if self.jobs:
            return self.jobs[0].state
        return "LOST" if self.is_asked else "RUNNING" if self.answers else "UNKNOWN"

    @property
    def problem(self) -> str:
        """Reason why the job does not run there for certain; empty if it does."""
        what = "does not have the job any more" if self.is_asked else "does not answer, and no slot gives heartbeats"
        return "" if self.runs else f"{named(self)} {what}"


def find(store: JobStore, here: Collection[str]) -> Elsewhere | None:
    """Return the other Flink of a job that the Flinks at the places `here` do not have; None if there is none.

    The Flink that the job's generation names is asked. A generation of an older version, or of a container, names no
    machine: then those that were started on this machine are asked, and heartbeats of slots count.
    """
    serving = store.generations().serving
    named = serving.flink if serving else ""
    if named and named in here:
        return None
    answers = any(report.state == "ready" for report in store.slots())
    if not (serving or answers):
        # It was stopped, and no Flink need be asked.
        return None
    own = [f"http://{address}" for address in state.addresses(flink_cluster.SERVICE)]
    found = Elsewhere(named or _UNNAMED, answers)
    for url in at_hand(named) if named else [each for each in own if place_of(each) not in here]:
        jobs = _ask(url, store.job)
        if jobs:
            return Elsewhere(named or place_of(url), answers, True, url, tuple(jobs))
        if named and jobs is not None:
            return Elsewhere(named, answers, True, url)
    return found if named or answers else None


def refuse(store: JobStore, flink: Flink, done: str) -> None:
    """Refuse to do something to a job, named in words, while it runs in another Flink than the one given.

    Raises:
        LaunchError: If it does.
    """
    found = find(store, [flink.place])
    if found and found.runs:
        raise LaunchError(
            f"job {store.job} was not {done}, because it runs in {named(found)}: use the "
            "configuration that names this Flink (-c), or another jobName"
        )


def named(found: Elsewhere) -> str:
    """Return the Flink of a job in words."""
    return found.place if found.place == _UNNAMED else f"Flink at {found.place}"


def _ask(url: str, job: str) -> list[Job] | None:
    """Return the jobs of a name that a Flink has; None if it does not answer."""
    try:
        with FlinkRest(url, _ANSWERS_WITHIN) as flink:
            return flink.jobs(job)
    except LaunchError:
        return None
