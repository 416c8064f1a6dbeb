"""Changes of a job while it runs: update, scale, canary, shadow, promote and roll back.

A change starts a second generation of the job beside the one that serves (`protocol.generations`). It takes over when
its model is loaded and warm in every slot; the other one then reads no more, answers what it has read, and ends. If it
does not come up, nothing changes for clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from redis.exceptions import ConnectionError, RedisError

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config import repository
from cluster_serving.launcher.config.job_options import with_layout
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import capacity, elsewhere, hosted, lifecycle, lock, payload_folder
from cluster_serving.launcher.jobs.layout.decision import described, layout_of
from cluster_serving.launcher.jobs.lifecycle import Started
from cluster_serving.launcher.jobs.preparation import prepared
from cluster_serving.launcher.jobs.recent import Totals
from cluster_serving.launcher.jobs.restart import again, resize
from cluster_serving.launcher.jobs.services import Services, services
from cluster_serving.launcher.jobs.store import JobStore, generation_of, opened
from cluster_serving.launcher.rollout import comparison
from cluster_serving.launcher.services.flink_rest import Job
from cluster_serving.launcher.shipping.inspection import shown
from cluster_serving.protocol.figures.stats import LATENCY_BOUNDS_MS
from cluster_serving.protocol.generations import (
    CANARY,
    CANDIDATE,
    IDLE_LOOK_S,
    RETIRING,
    SERVING,
    SHADOW,
    Generation,
)

T = TypeVar("T")

_POLL_S = 0.1
_SETTLED_S = 1.0
"""Seconds after which all slots have seen a new role, as they look often beside another generation."""
_NOTICED_S = IDLE_LOOK_S + 0.5
"""Seconds after which all slots have seen that there is another generation."""
_DRAIN_S = 120.0
_FLINK_BACK_S = 60.0


class NotBeside(LaunchError):
    """The new generation cannot run beside the one that serves: the job has to be stopped in between."""


class Busy(LaunchError):
    """Another command works on the job, or a canary or shadow has to be ended first; a later attempt may succeed."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A change that was made.

    Attributes:
        started: The new generation.
        number: Its number.
        role: Its role now.
        meanwhile: What clients saw meanwhile, in words.
    """

    started: Started
    number: int
    role: str
    meanwhile: str


def update(config: Config, canary: float = 0.0, shadow: float = 0.0) -> Changed:
    """Let a job serve the model and the configuration as they are now, without a gap.

    With `canary` or `shadow`, a percentage, the new generation gets this share of the requests, or of copies of them,
    and the one that serves stays: `promote` or `rollback` ends that.

    Raises:
        LaunchError: If the job does not run, or the new generation does not come up; the job goes on as it was.
        Busy: If another change of the job is under way, or it has a canary or shadow.
        NotBeside: If two generations of the job cannot run beside each other.
        ModelError: As for `lifecycle.start`.
    """
    config = lifecycle.checked(config)
    with _changing(config) as services:
        _refuse_during_rollout(services)
        now = services.options_now()
        config = _with_slots_of(now, services.target.fitted(config))
        _check_beside(services, config)
        _check_is_one(config, now, "canary" if canary else "shadow" if shadow else "")
        config, options = prepared(services, config, now)
        if shadow:
            options = replace(options, redis=replace(options.redis, shadow=True))
        role, share = (CANARY, canary) if canary else (SHADOW, shadow) if shadow else (SERVING, 0.0)
        return _change(services, config, options, role, share)


def scale(config: Config, job: str, slots: int) -> Changed:
    """Change the number of slots of a job, and nothing else, without a gap; one of several models is stopped meanwhile.

    Raises:
        LaunchError: As for `update`; also if this machine does not know how the job was started.
    """
    with _changing(_named(config, job)) as services:
        _refuse_during_rollout(services)
        now = _options_now(services)
        if now.hosted:
            earlier = Totals.of(services.store)
            started, options = resize(services, config, now, slots)
            return Changed(started, options.redis.generation, SERVING, _meanwhile(earlier, services.store))
        options = replace(now, model_parallelism=slots)
        return _change(services, *again(services, config, options), SERVING)


def promote(config: Config, job: str) -> Changed:
    """Let the canary of a job serve all requests; the generation that served ends.

    A shadow cannot answer requests: a further generation is started as it was, and both others end.

    Raises:
        LaunchError: As for `update`; also if the job has neither canary nor shadow.
    """
    config = _named(config, job)
    with _changing(config) as services:
        now = services.store.generations()
        rollout = now.trial
        if rollout is None:
            raise LaunchError(f"job {job} has neither a canary nor a shadow; cluster-serving-cli update starts one")
        earlier = Totals.of(services.store)
        if rollout.role == SHADOW:
            options = _recall(services, rollout)
            _tell_comparison(services, rollout)
            changed = _change(services, *again(services, config, options), SERVING)
            _end_rollout(services, rollout)
            return changed
        if before := services.options_now():
            services.target.records.keep_earlier(before)
        _switch(services, rollout, now.serving)
        if now.serving:
            _retire(services, now.serving)
        started = _started(services, config, rollout)
        services.store.note("running", layout=started.layout)
        return Changed(started, rollout.number, SERVING, _meanwhile(earlier, services.store))


def rollback(config: Config, job: str) -> Changed | None:
    """End the canary or shadow of a job; without one, start the generation that served before, without a gap.

    Return None if a canary or shadow was ended.

    Raises:
        LaunchError: As for `update`; also if this machine does not know the generation before.
    """
    with _changing(_named(config, job)) as services:
        if rollout := services.store.generations().trial:
            if rollout.role == SHADOW:
                _tell_comparison(services, rollout)
            _end_rollout(services, rollout)
            return None
        options = services.target.records.earlier(job)
        if options is None:
            raise LaunchError(
                f"this machine knows no earlier generation of job {job}; edit the configuration, and update"
            )
        return _change(services, *again(services, config, options), SERVING)


def settle(config: Config) -> bool:
    """End what a command that was killed in the middle of a change has left; return True if there was something.

    Nothing is done while another command works on the job.
    """
    with opened(config) as store:
        left = [each for each in store.generations().all.values() if _is_left(each)]
        if not left or lock.holder(store):
            return False
    with services(config, "changed") as provided:
        return _settle(provided)


@contextmanager
def _changing(config: Config) -> Iterator[Services]:
    """Provide Redis and Flink for a job that runs; refuse if another command works on the job."""
    # Where Redis does not run, nobody holds the lock, and `services` starts it.
    with opened(config) as store, suppress(ConnectionError):
        if holder := lock.holder(store):
            raise Busy(f"job {config.job_name} is being changed by {holder}; try again when it has ended")
    with services(config, "changed") as provided:
        flink = provided.flink
        if not flink.jobs(config.job_name):
            hosted.refuse(provided.store, "cluster-serving-restart changes all models of that job")
            elsewhere.refuse(provided.store, flink, "changed")
            raise LaunchError(f"job {config.job_name} does not run on {flink.where}; cluster-serving-start starts it")
        _settle(provided)
        yield provided


def _named(config: Config, job: str) -> Config:
    return config.model_copy(update={"job_name": job})


def _refuse_during_rollout(services: Services) -> None:
    if rollout := services.store.generations().trial:
        raise Busy(
            f"generation {rollout.number} is the {rollout.role} of job {services.store.job}, with {rollout.share:g} % "
            "of the requests; end that first: cluster-serving-cli promote, or cluster-serving-cli rollback"
        )


def _check_beside(services: Services, config: Config) -> None:
    """Check that a new generation can share the Redis and the folder for large inputs of the one that serves."""
    if services.store.generations().serving is None:
        raise NotBeside(f"the Redis at {config.redis_shown} does not know the job {config.job_name} that runs")
    if not payload_folder.stays(config, services.store.payload_folder()):
        raise NotBeside("payloadFolder has changed, and both generations have to read the same folder")


def _check_is_one(config: Config, now: JobOptions | None, trial: str) -> None:
    """Check that a job serves one model, and did so before: the streams of several have one reader."""
    if repository.find(shown(config)) or (now and now.hosted):
        if trial:
            raise LaunchError(f"job {config.job_name} serves several models; a {trial} is for jobs of one model")
        raise NotBeside(f"job {config.job_name} serves several models; cluster-serving-cli update NAME changes one")


def _check_room(services: Services, config: Config, options: JobOptions, now: JobOptions | None) -> None:
    """Check that this machine can hold the slots of both generations, if the slots are to run here."""
    path = Path(options.model.path)
    if now and services.target.is_here and path.exists():
        both = config.slots + now.model_parallelism
        if not capacity.holds(config, [path], both):
            raise NotBeside(f"this machine cannot hold {both} slots, those of the old and of the new generation")


def _with_slots_of(now: JobOptions | None, config: Config) -> Config:
    """Return the configuration with the number of slots that the job has now, where that number follows the load."""
    if config.autoscale_max is None or now is None:
        return config
    slots = min(max(now.model_parallelism, config.autoscale_min), config.autoscale_max)
    return config.model_copy(update={"model_parallelism": slots})


def _options_now(services: Services) -> JobOptions:
    serving = services.store.generations().serving
    if serving is None:
        raise LaunchError(f"no generation of job {services.store.job} serves; cluster-serving-restart starts it again")
    return _recall(services, serving)


def _recall(services: Services, generation: Generation) -> JobOptions:
    job = services.store.job
    options = services.target.records.recall(job, generation.submission)
    if options is None:
        raise LaunchError(
            f"job {job} was not started from this machine and user; edit its config.yaml, and use cluster-serving-cli "
            "update"
        )
    return options


def _change(services: Services, config: Config, options: JobOptions, role: str, share: float = 0.0) -> Changed:
    """Start a new generation, and give it its role when it is ready."""
    store, job, number = services.store, config.job_name, options.redis.generation
    earlier, now = Totals.of(store), services.options_now()
    if options.hosted or (now and now.hosted):
        raise LaunchError(f"job {job} serves several models, or did before; cluster-serving-restart changes it")
    candidate = generation_of(options, CANDIDATE, services.flink.place)
    say(f"Starting generation {number} of job {job} beside the one that serves")
    _check_room(services, config, options, now)
    with ExitStack() as stack:
        try:
            stack.enter_context(services.target.slots(config.slots))
        except LaunchError as error:
            raise NotBeside(str(error)) from None
        store.put(candidate)
        noticed = time.monotonic() + _NOTICED_S
        try:
            started = lifecycle.submit(services, config, options, number)
        except BaseException as error:
            store.end(number)
            reason = str(error) if isinstance(error, Exception) else "the change was interrupted"
            store.note("running", error=reason)
            with suppress(LaunchError):
                services.tidy()
            if isinstance(error, (LaunchError, RedisError)):
                raise LaunchError(f"{error}; job {job} goes on as it was") from None
            raise
    store.count_version(options)
    services.target.records.remember(options)
    # A start takes longer, as a rule.
    time.sleep(max(0.0, noticed - time.monotonic()))
    if role == SERVING:
        before = store.generations().serving
        # A command that dies later would not keep them.
        if now:
            services.target.records.keep_earlier(now)
        _switch(services, candidate, before)
        store.note("running", error="", log=services.target.home.log_of(job), layout=started.layout)
        if before:
            _retire(services, before)
    else:
        store.put(replace(candidate, role=role, share=share))
        store.note_error("")
        say(f"Generation {number} is ready, as the {role} with {share:g} % of the requests")
    return Changed(started, number, role, _meanwhile(earlier, store))


def _meanwhile(earlier: Totals, store: JobStore) -> str:
    """Return in words what clients saw since an earlier reading."""
    stats = hosted.stats(store) - earlier.stats
    seconds = time.monotonic() - earlier.time
    told = f"{stats.requests} request{'s' * (stats.requests != 1)} answered in {seconds:.0f} s"
    if stats.failures:
        told += f", {stats.failures} of them with an error"
    longest = max((index for index, count in enumerate(stats.latency_ms) if count), default=None)
    if longest is None:
        return told
    if longest == len(LATENCY_BOUNDS_MS):
        return f"{told}; the longest wait was more than {LATENCY_BOUNDS_MS[-1] / 1000:g} s"
    return f"{told}; the longest wait was at most {LATENCY_BOUNDS_MS[longest]:g} ms"


def _switch(services: Services, generation: Generation, before: Generation | None) -> None:
    serving = replace(generation, role=SERVING, share=0.0)
    services.store.switch(serving, before and replace(before, role=RETIRING))
    say(f"Switched to generation {generation.number}")


def _tell_comparison(services: Services, shadow: Generation) -> None:
    for topic, text in comparison.lines(services.store.comparison(shadow.number)).items():
        say(f"Shadow, {topic}: {text}")


def _end_rollout(services: Services, rollout: Generation) -> None:
    services.store.put(replace(rollout, role=RETIRING))
    _retire(services, rollout)


def _retire(services: Services, generation: Generation) -> None:
    """Wait until a generation has answered what it has read, and end it."""
    store, number = services.store, generation.number
    deadline, settled = time.monotonic() + _DRAIN_S, time.monotonic() + _SETTLED_S
    say(f"Generation {number} answers what it has read")
    if serving := store.generations().serving:
        store.hand_over(number, serving.number)
    while time.monotonic() < deadline:
        # A generation whose processes have died answers nothing; the others take over as soon as it has ended.
        if any(each.state != "RUNNING" for each in _running(services, generation)):
            break
        if time.monotonic() > settled and not store.unanswered(number):
            break
        time.sleep(_POLL_S)
    # A JobManager that is started again from now on leaves this generation out.
    services.target.records.forget(store.job, number)
    _cancel(services, generation)
    store.end(number)
    services.tidy()
    say(f"Generation {number} has ended")


def _cancel(services: Services, generation: Generation) -> None:
    def cancel() -> None:
        for each in _listed(services, generation):
            services.flink.cancel(each.id)

    while _running(services, generation):
        _retried(cancel)


def _running(services: Services, generation: Generation) -> list[Job]:
    """Return the jobs of a generation that Flink has now, which are others after the death of its JobManager."""
    return _retried(lambda: _listed(services, generation))


def _listed(services: Services, generation: Generation) -> list[Job]:
    return [each for each in services.flink.jobs(services.store.job) if each.submission == generation.submission]


def _retried(call: Callable[[], T]) -> T:
    """Call Flink again while its JobManager, which has died, is being started again."""
    deadline = time.monotonic() + _FLINK_BACK_S
    while True:
        try:
            return call()
        except LaunchError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)


def _settle(services: Services) -> bool:
    """End the generations that a killed command has left: candidates, and such as retire."""
    job, now = services.store.job, services.store.generations()
    known = {each.submission for each in now.all.values()}
    left = [each for each in now.all.values() if _is_left(each)]
    for each in left:
        say(f"Ending generation {each.number} of job {job}, which a command that was killed has left")
        _retire(services, each)
    # Those that ended in Redis alone; a Redis that has lost all tells nothing.
    strays = [each for each in services.flink.jobs(job) if each.submission not in known] if now.serving else []
    for stray in strays:
        services.flink.cancel(stray.id)
    return bool(left or strays)


def _is_left(generation: Generation) -> bool:
    return generation.role in (CANDIDATE, RETIRING)


def _started(services: Services, config: Config, generation: Generation) -> Started:
    job, slots = services.store.job, services.store.slots()
    running = _listed(services, generation)
    page = services.flink.page(running[0].id) if running else services.flink.where
    layout, options = "", services.target.records.recall(job, generation.submission)
    if options:
        given = layout_of(options)
        config, options = with_layout(config, options, given.copies, given.threads, given.batch)
        layout = described(services.target, services.store, config, options)
    return Started(config, page, slots[0].summary if slots else "", layout)
