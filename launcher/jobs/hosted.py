"""The models of a job that serves several, as the commands see them: the job's hash, and the keys of each model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from redis.exceptions import NoPermissionError

from cluster_serving.job.options import HostedOptions, JobOptions
from cluster_serving.launcher.command_log import warn
from cluster_serving.launcher.config import repository
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import model_files, retiring
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.shipping.inspection import picture_of
from cluster_serving.protocol.figures.stats import LAST_ANSWER, JobStats
from cluster_serving.protocol.hosting import orders
from cluster_serving.protocol.hosting.control import UNLOADED
from cluster_serving.protocol.hosting.models import HOST
from cluster_serving.protocol.hosting.orders import (
    CHANGED,
    CONTENT,
    DEATHS,
    HANGS,
    KEPT_OUT,
    OPTIONS,
    REFUSED,
    REFUSED_CONTENT,
    VERSION,
)
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport, read_reports

_REFUSED = (REFUSED, REFUSED_CONTENT)
_OF_CHANGES = (OPTIONS, KEPT_OUT, CHANGED, DEATHS, HANGS, *_REFUSED)


@dataclass(frozen=True, slots=True)
class HostedModel:
    """State of one model of a job that serves several.

    Attributes:
        name: Its name.
        state: `loading`, `ready`, `failed` or `unloaded`; while no slot is ready, the state of the slot.
        model: Engine, device, inputs and outputs in words; empty if it is not loaded.
        error: Reason why it is not served, or why its new files are not while earlier ones are; empty for neither.
        queued: Number of its queued requests.
        answered: Number of its requests that were answered since `cluster-serving-start`.
        dead_letters: Number of its dead letters.
    """

    name: str
    state: str
    model: str
    error: str
    queued: int
    answered: int
    dead_letters: int


def read(store: JobStore) -> list[HostedModel]:
    """Return the models of a job, by name; none if it serves one."""
    found = []
    states = [report.state for report in store.slots()]
    of_slot = "" if "ready" in states else next(iter(states), "")
    for name, report in store.models().items():
        keys = JobKeys(name)
        with store.client.pipeline(transaction=False) as pipeline:
            for stream in (*keys.streams, keys.dead_letters):
                pipeline.xlen(stream)
            *queued, dead, answered = pipeline.get(keys.answered).execute()
        known = report.state if report.state in ("failed", UNLOADED) else of_slot or report.state
        state = known
        error = (
            report.error
            or store.client.hget(keys.record, REFUSED)
            or (_not_in(store, name) if known == "ready" else "")
        )
        found.append(HostedModel(name, state, report.summary, error, sum(queued), int(answered or 0), dead))
    return found


def _not_in(store: JobStore, name: str) -> str:
    """Return which slots do not serve a model that others serve, and why; empty if all do."""
    reports = read_reports(store.client.hgetall(JobKeys(name).slots()))
    return "; ".join(f"slot {each.index} does not serve it: {each.error}" for each in reports if each.state == "failed")


def stores(store: JobStore) -> list[JobStore]:
    """Return the job, and its models as if they were jobs."""
    return [store, *(JobStore(store.client, name) for name in store.models())]


def stats(store: JobStore, generation: int | None = None) -> JobStats:
    """Return the totals of a job and its models, or of one generation."""
    totals: Counter[str] = Counter()
    latest = 0
    for one in stores(store):
        fields = store.client.hgetall(one.keys.stats(generation))
        latest = max(latest, int(fields.get(LAST_ANSWER, 0)))
        totals.update({name: int(value) for name, value in fields.items()})
    return JobStats.read({**totals, LAST_ANSWER: latest})


def host_of(store: JobStore) -> str:
    """Return the job that serves a model of the name of `store`; empty if none does."""
    return store.client.hget(store.keys.record, HOST) or ""


def refuse(store: JobStore, advice: str) -> None:
    """Refuse a command for a job whose name is that of a model; `advice` has `{host}` for the job of the model.

    Raises:
        LaunchError: If it is.
    """
    if host := host_of(store):
        raise LaunchError(f"{store.job} is a model of the job {host}, and not a job; {advice.format(host=host)}")


def check_free(store: JobStore, names: Iterable[str], folder: str) -> None:
    """Check that no other job has the name of a model of a job, and none serves a model of that name.

    Raises:
        LaunchError: If one does: the streams of two models would be the same. Also if the user of Redis has no rights
            for the keys of a model.
    """
    for name in names:
        other = JobStore(store.client, name)
        try:
            state = other.record().state
        except NoPermissionError as error:
            raise LaunchError(
                f"the user of Redis in redisUrl may not use the keys of the model {name} ({error}); it needs "
                f"~{name} ~{name}:* ~cluster-serving_{name}:* (docs/how-to/many-models.md, Users of Redis)"
            ) from None
        if state:
            raise LaunchError(
                f"the model {name} has the name of a job; rename its subfolder of {folder}, or remove the job with "
                f"cluster-serving-stop {name} and cluster-serving-cli forget {name}"
            )
        if (host := host_of(other)) not in ("", store.job):
            raise LaunchError(
                f"the job {host} serves a model of the name {name}, too; rename the subfolder of {folder}, or remove "
                f"that job with cluster-serving-stop {host} and cluster-serving-cli forget {host}"
            )


def content(one: HostedOptions) -> str:
    """Return a fingerprint of the files with which a model is loaded."""
    return model_files.content(picture_of(one.model.path), one.version if one.numbered else "")


def with_count(store: JobStore, one: HostedOptions) -> HostedOptions:
    """Return the options of a model with `content`, and its version: that of its folder, or the number of changes."""
    found = content(one)
    if one.numbered:
        return replace(one, content=found)
    last, known = store.client.hmget(JobKeys(one.name).record, VERSION, CONTENT)
    number = int(last) if last and last.isdecimal() else 0
    return replace(one, version=str(number if number and known == found else number + 1), content=found)


def where(options: JobOptions) -> str:
    """Return the folder or the address of the models of a job, as it is configured, for messages."""
    return repository.place(options.model.configured or options.model.path)


def announce(store: JobStore, options: JobOptions) -> list[str]:
    """Describe the models of a job that is about to start as loading, in place of those that it had before.

    Return the names of models that it has no more. They stay unloaded until it has started; see `remove`.
    """
    before, now = store.models(), {one.name for one in options.hosted}
    store.client.delete(orders.key(store.job), orders.wakeups(store.job))
    store.client.hdel(store.keys.record, CHANGED)
    if not (before or now):
        return []
    gone = sorted(before.keys() - now)
    for name in before:
        store.client.delete(JobKeys(name).answered)
    fields: list[str] = []
    for name in gone:
        store.client.delete(JobKeys(name).slots(), JobKeys(name).record)
        fields += [name, replace(before[name], state=UNLOADED).to_json()]
    for one in options.hosted:
        name, record = one.name, JobKeys(one.name).record
        # Of a model that was rolled back, and is served as before, the files of its subfolder are still refused.
        found = one.content or content(one)
        goes_on = store.client.hget(record, CONTENT) == found
        store.client.hdel(record, *(each for each in _OF_CHANGES if not (goes_on and each in _REFUSED)))
        store.write(record, [HOST, store.job, VERSION, one.version, CONTENT, found])
        report = replace(before.get(name, SlotReport("", "")), state="loading", code=None, error=None)
        fields += [name, report.to_json()]
        # A slot that has not told anything yet may be able to load what another one cannot.
        slots = [part for index in range(options.model_parallelism) for part in (str(index), report.to_json())]
        store.write(JobKeys(name).slots(), slots, anew=True)
    store.write(store.keys.models, fields, anew=True)
    return gone


def remove(store: JobStore, config: Config, name: str, folder: str) -> None:
    """Answer the requests for a model that is not in the folder any more, and remove its keys but for dead letters."""
    keys = JobKeys(name)
    queued, dead = retiring.answer(config, name), store.client.xlen(keys.dead_letters)
    store.client.hdel(store.keys.models, name)
    store.client.delete(keys.slots(), keys.record)
    if queued or dead:
        warn(
            f"the model {name} is not in {folder} any more; {queued} queued requests and {dead} dead letters stay: "
            f"cluster-serving-cli forget {name} removes them"
        )


def described(store: JobStore, tell: Callable[[str], None] = warn) -> tuple[str, list[str]]:
    """Return the models of a job that has just started in words, and those that are served; tell of the others."""
    models = {name: report for name, report in store.models().items() if report.state != UNLOADED}
    for name, report in models.items():
        if report.state == "failed":
            tell(f"the model {name} is not served: {report.error}")
    served = [name for name, report in models.items() if report.state == "ready"]
    return f"{len(served)} of {len(models)}: {', '.join(served)}", served
