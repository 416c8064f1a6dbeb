"""Changes of one model of a job that serves several, while the job runs: load, unload and remove.

The slots of the job load the model beside the one that serves, and swap them (`job.hosting.changes`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cluster_serving.job.options import HostedOptions, JobOptions, RedisOptions
from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config import repository, versions
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.config.repository import Repository
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import hosted, model_copy
from cluster_serving.launcher.jobs.services import Services, services
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.shipping.inspection import shown, unknown
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.hosting import orders
from cluster_serving.protocol.hosting.control import LOAD, UNLOAD, decode_outcome
from cluster_serving.protocol.hosting.models import HOST
from cluster_serving.protocol.hosting.orders import CHANGED, CONTENT, REFUSED, REFUSED_CONTENT, REMOVE, VERSION, Order
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport

_POLL_S = 0.05
_LOST_S = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """What a change of a model of a running job needs.

    Attributes:
        config: Configuration of the job, with its layout; its models are here, or their picture is (`shown`).
        store: Redis of the job.
        options: Options with which the job serves.
        models: The subfolders of its folder.
        earlier: Options with the model that was served before, for each that was changed; None if none was.
    """

    config: Config
    store: JobStore
    options: JobOptions
    models: Repository
    earlier: JobOptions | None = None


def serves(config: Config, name: str) -> bool:
    """Return True if a name is that of a model of the folder of a configuration."""
    found = repository.find(shown(config))
    return bool(found and name in found.names)


def load(config: Config, name: str) -> SlotReport | None:
    """Let a running job serve a model as its subfolder is now, in place of what it serves under that name.

    Return the description of the model; None if its subfolder has gone, and the model with it.

    Raises:
        LaunchError: If the job does not run, has no such model, or its slots cannot reach the subfolder.
        ServingError: If the model cannot be loaded; what the job served under that name, it still serves.
    """
    with _place(config) as (provided, place):
        if name in place.models.names:
            _check_reach(config)
            report, options = load_in(place, name)
        elif name in place.store.models():
            say(f"Removing the model {name}, whose subfolder has gone")
            report, options = None, remove_in(place, name)
        else:
            if name in place.models.misplaced:
                raise LaunchError(repository.misplacement(place.config, [name]))
            raise LaunchError(
                f"{repository.place(config.model_path)} has no subfolder {name} that holds a model, and job "
                f"{config.job_name} serves none of that name; there are {', '.join(place.models.names)}"
            )
        _remember(provided, place, options, name)
        return report


def rollback(config: Config, name: str) -> SlotReport:
    """Let a running job serve a model as it was before its last change, or before the last start.

    The files of now are not loaded by the watch, until they change.

    Raises:
        LaunchError: If the job does not run, the model was not changed, or the slots cannot reach its files.
        ServingError: If the model cannot be loaded; the job goes on as it was.
    """
    with _place(config) as (provided, place):
        _check_reach(config)
        report, options = rollback_in(place, name)
        _remember(provided, place, options, name)
        return report


def unload(config: Config, name: str) -> None:
    """Let a running job serve a model no more, until it is loaded again; the other models go on.

    Raises:
        LaunchError: If the job does not run, or serves no such model.
    """
    with _place(config) as (_, place):
        unload_in(place, name)


def load_in(place: Place, name: str) -> tuple[SlotReport, JobOptions]:
    """Load a model; return its description, and the options with which the job serves then. See `load`."""
    store, options = place.store, place.options
    hosted.check_free(store, [name], hosted.where(options))
    source = Path(place.config.model_path, name)
    folder = model_copy.of_model(options, source)
    one = repository.hosted(place.config, options, name, folder)
    return _load(place, one)


def rollback_in(place: Place, name: str) -> tuple[SlotReport, JobOptions]:
    """Load a model as it was before; return its description, and the options of the job then. See `rollback`."""
    earlier = next((one for one in place.earlier.hosted if one.name == name), None) if place.earlier else None
    if earlier is None or _is_same(place.options, earlier):
        raise LaunchError(
            f"this machine knows no earlier files of the model {name}; change its subfolder, and use "
            f"cluster-serving-cli update {name}"
        )
    loaded = _load(place, earlier)
    seen = repository.hosted(place.config, place.options, name, Path(place.config.model_path, name))
    refusal = "the files of its subfolder are not served, since it was rolled back"
    place.store.write(JobKeys(name).record, [REFUSED, refusal, REFUSED_CONTENT, hosted.content(seen)])
    return loaded


def _load(place: Place, one: HostedOptions) -> tuple[SlotReport, JobOptions]:
    store, options, name = place.store, place.options, one.name
    one = hosted.with_count(store, one)
    record = JobKeys(name).record
    store.write(record, [HOST, store.job])
    say(f"Loading the model {name}, version {one.version}")
    try:
        _order(place, name, Order(LOAD, _text(one)))
    except BaseException as error:
        if not isinstance(error, _GoesOn):
            model_copy.tidy_models(replace(options, hosted=(one,)), *_known(place))
        if isinstance(error, ServingError):
            store.write(record, [REFUSED, f"the new files are not served: {error}", REFUSED_CONTENT, one.content])
            store.tell(f"the model {name} cannot be loaded: {error}")
        raise
    store.client.hdel(record, REFUSED, REFUSED_CONTENT)
    store.write(record, [VERSION, one.version, CONTENT, one.content])
    store.tell(f"the model {name} is served as version {one.version}")
    others = [each for each in options.hosted if each.name != name]
    changed = replace(options, hosted=tuple(sorted([*others, one], key=lambda each: each.name)))
    return store.models()[name], changed


def unload_in(place: Place, name: str) -> None:
    """Unload a model; see `unload`."""
    if name not in place.store.models():
        raise LaunchError(f"job {place.store.job} serves no model {name}")
    say(f"Unloading the model {name}")
    _order(place, name, Order(UNLOAD))
    place.store.tell(f"the model {name} is unloaded")


def remove_in(place: Place, name: str) -> JobOptions:
    """Remove a model whose subfolder has gone; return the options with which the job serves then."""
    store, options = place.store, place.options
    try:
        _order(place, name, Order(REMOVE))
    except _Lost:
        # The slots may have carried it out before, and have described their models again.
        if name in store.models():
            raise
    hosted.remove(store, place.config, name, hosted.where(options))
    # A slot that was not there has it back as unloaded.
    store.write(store.keys.record, [CHANGED, repr(time.time())])
    orders.wake(store.client, store.job)
    store.tell(f"the model {name} is removed")
    changed = replace(options, hosted=tuple(one for one in options.hosted if one.name != name))
    return changed


class _Lost(LaunchError):
    """Redis has lost the order."""


class _GoesOn(LaunchError):
    """The slots have not answered in time, and may still load the model."""


@contextmanager
def _place(config: Config) -> Iterator[tuple[Services, Place]]:
    config = versions.resolved(config)
    there = repository.place(config.model_path)
    models = repository.find(shown(config))
    job = config.job_name
    if models is None:
        one = f"{there} is not a folder of several models; job {job} serves one model"
        raise LaunchError(unknown(config) or one)
    # A subfolder of a wrong name keeps no other model from being changed.
    if problem := repository.problem(config, models):
        raise LaunchError(f"{there} holds several models: {problem}")
    with services(config, "changed") as provided:
        if not provided.flink.jobs(job):
            raise LaunchError(f"job {job} does not run on {provided.flink.where}; cluster-serving-start starts it")
        options = provided.options_now()
        if options is None or not options.hosted:
            raise LaunchError(f"job {job} was not started here with several models; use cluster-serving-restart")
        earlier = provided.target.records.earlier(job)
        earlier = earlier if earlier and earlier.hosted else None
        # The slots may be more, or fewer, than at the start.
        config = repository.laid_out(shown(config).model_copy(update={"model_parallelism": options.model_parallelism}))
        yield provided, Place(config, provided.store, options, models, earlier)


def _check_reach(config: Config) -> None:
    """Check that the slots of a job can reach files that have changed since its start.

    Raises:
        LaunchError: If they are on other machines, to which the job has brought its models.
    """
    if repository.travels(config):
        raise LaunchError(
            f"the models of job {config.job_name} have travelled with it (flink.ship: {config.ships}), and new files "
            "do not; cluster-serving-restart brings them"
        )


def _is_same(options: JobOptions, one: HostedOptions) -> bool:
    """Return True if a job serves the same files under the name of a model: somebody has loaded them again."""
    return any(each.name == one.name and hosted.content(each) == hosted.content(one) for each in options.hosted)


def _known(place: Place) -> list[JobOptions]:
    """Return the options whose copies stay."""
    return [place.options, *filter(None, [place.earlier])]


def _remember(provided: Services, place: Place, options: JobOptions, name: str) -> None:
    """Keep the options of the job as it is now, and those of the model before; remove other copies."""
    records, before = provided.target.records, place.options
    earlier = place.earlier or before
    replaced = [one for one in before.hosted if one.name == name]
    if not any(_is_same(options, one) for one in replaced):
        earlier = replace(earlier, hosted=(*(one for one in earlier.hosted if one.name != name), *replaced))
    records.remember(options)
    records.keep_earlier(earlier)
    for each in _known(place):
        model_copy.tidy_models(each, options, earlier)


def _text(one: HostedOptions) -> str:
    """Return the options of a model for an order; the key of encrypted records is the job's, and stays there."""
    alone = replace(one, image=replace(one.image, record_key=None))
    return JobOptions("", one.model, RedisOptions(""), hosted=(alone,)).to_json()


def _order(place: Place, name: str, order: Order) -> None:
    """Give the slots an order, after the one before, and wait until it is carried out.

    Raises:
        ServingError: If a slot could not carry it out; nothing has changed then.
        LaunchError: If the slots do not answer in time.
    """
    client, key, job = place.store.client, orders.key(place.store.job), place.store.job
    outcome = place.store.keys.control_outcome(order.id)
    end = time.monotonic() + place.config.start_timeout
    while client.hget(key, name):
        if time.monotonic() > end:
            raise LaunchError(f"an earlier change of the model {name} is not carried out; cluster-serving-cli status")
        time.sleep(_POLL_S)
    place.store.write(key, [name, order.to_json()])
    orders.wake(client, job)
    seen = time.monotonic()
    while not (fields := client.hgetall(outcome)):
        # The outcome follows the end of the order.
        seen = seen if client.hget(key, name) is None else time.monotonic()
        if time.monotonic() - seen > _LOST_S:
            raise _Lost(f"Redis has lost the order to {order.action} the model {name}; try again")
        if time.monotonic() > end:
            raise _GoesOn(
                f"job {job} has not carried out the {order.action} of the model {name} within "
                f"{place.config.start_timeout} s (startTimeout); cluster-serving-cli status shows what becomes of it"
            )
        time.sleep(_POLL_S)
    client.delete(outcome)
    if error := decode_outcome({text.encode(): value.encode() for text, value in fields.items()}):
        raise error
