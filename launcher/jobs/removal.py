"""Removal of a job; and shutdown of all that was started here: jobs, front ends, Flink and Redis."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import cast

from redis.exceptions import RedisError

from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import elsewhere, foreign_jobs, hosted, lock, model_copy, payload_folder
from cluster_serving.launcher.jobs.lifecycle import cancel, jobs_of
from cluster_serving.launcher.jobs.store import JobStore, opened
from cluster_serving.launcher.services import controller, flink_cluster, front_end, redis_data, redis_server, state
from cluster_serving.launcher.services.flink_rest import Flink, FlinkRest, Job
from cluster_serving.launcher.services.process import is_listening
from cluster_serving.launcher.targets import target_of
from cluster_serving.launcher.targets.records import JobRecords
from cluster_serving.protocol.keys import JOBS_KEY
from cluster_serving.settings.addresses import Address


def forget(config: Config, job: str) -> None:
    """Remove all that Redis and this machine keep of a job that does not run; unread results expire by themselves.

    Raises:
        LaunchError: If the job runs, or is a model of another one.
        RedisError: If Redis does not take the removal.
    """
    target = target_of(config)
    with lock.for_job(config, job), opened(config, job) as store:
        with jobs_of(target, job) as (active, flink):
            if active:
                raise LaunchError(f"job {job} is {active[0].state}; run cluster-serving-stop {job} before")
            _check_elsewhere(store, flink)
        hosted.refuse(store, "remove its subfolder, and run cluster-serving-cli update with its name")
        target.records.forget(job)
        target.records.forget_earlier(job)
        model_copy.tidy(target.home.path, target.records.known())
        payload_folder.remove(config.model_copy(update={"job_name": job}), store.payload_folder())
        generations = store.generations().all
        for one in reversed(hosted.stores(store)):
            store.client.delete(*one.keys.lasting(generations))
        # In a Redis Cluster this key may be on another node, and has no names then.
        with suppress(RedisError):
            store.client.srem(JOBS_KEY, job)


def _check_elsewhere(store: JobStore, flink: Flink) -> None:
    elsewhere.refuse(store, flink, "removed")
    found = elsewhere.find(store, [flink.place])
    if found and not found.is_asked:
        raise LaunchError(
            f"job {store.job} may run in {elsewhere.named(found)}, which does not answer; if that is gone, run "
            f"cluster-serving-stop {store.job} before"
        )


def losses(config: Config | None) -> str:
    """Return in words what `shut_down` without `keep_data` would lose, and the jobs that it would stop.

    The result is empty if nothing would be lost.
    """
    kept = going_on(config)
    lost = [text for redis in _redis_servers(config) if redis not in kept and (text := redis_data.describe(redis))]
    if not lost:
        return ""
    jobs = []
    for client in _flinks(config):
        with suppress(LaunchError), client as flink:
            jobs += [job.name for job in flink.jobs() if not _goes_on(config, job)]
    return f"{'; '.join(lost)}; running jobs: {', '.join(jobs) or 'none'}"


def shut_down(config: Config | None, keep_data: bool = False) -> bool:
    """Stop all jobs, and the Redis and Flink that were started here; the data of that Redis is removed.

    Jobs of another Redis go on in a Flink that was not started here. Return True if there was anything to stop. Without
    a configuration, all that was started here is stopped. With `keep_data`, the data of Redis wait for the next start.
    """
    kept = going_on(config)
    for redis, jobs in kept.items():
        names = ", ".join(f"job {job} runs in {place}" for job, place in jobs.items())
        say(f"Redis at {redis} and its front ends go on: {names}")
    # They could start jobs again.
    controllers = controller.stop_all(config.redis_address if config else None, kept)
    for job in controllers:
        say(f"Stopped the controller of job {job}")
    with ExitStack() as stack:
        for flink in _flink_clusters(config):
            # A resubmission that waits for slots ends when there is nothing left to submit.
            JobRecords(flink_cluster.folder(flink)).forget_all()
            stack.enter_context(flink_cluster.submitting(flink))
        return _stop_services(config, keep_data, kept) or bool(controllers or kept)


def going_on(config: Config | None) -> dict[Address, dict[str, str]]:
    """Return the jobs that `shut_down` does not stop, as they run in other Flinks: by Redis and name, their Flinks."""
    here: set[str] = set()
    own: set[str] = set()
    for client in _flinks(config, all=True):
        with suppress(LaunchError), client as flink:
            here.add(flink.place)
            own |= {job.submission for job in flink.jobs()}
    kept: dict[Address, dict[str, str]] = {}
    for redis in _redis_servers(config):
        with suppress(RedisError, OSError):
            for store in _stores(redis, config):
                serving = store.generations().serving
                found = None if serving and serving.submission in own else elsewhere.find(store, here)
                if found and found.runs:
                    kept.setdefault(redis, {})[store.job] = elsewhere.named(found)
    return kept


def _stores(redis: Address, config: Config | None) -> Iterator[JobStore]:
    """Yield the jobs of a Redis: of all databases if it was started here, else of that of the configuration."""
    databases = redis_data.databases(redis) if redis_server.is_ours(redis) else []
    clients = [redis_server.connect_own(redis, database, decode=True) for database in databases]
    if config and not databases:
        clients = [redis_server.connect(config)]
    for client in clients:
        with client:
            names = cast("set[str]", client.smembers(JOBS_KEY))
            for name in sorted(names):
                yield JobStore(client, name)


def _stop_services(config: Config | None, keep_data: bool, kept: Mapping[Address, Collection[str]]) -> bool:
    stopped = False
    spared = {str(spelling) for redis in kept for spelling in redis.spellings}
    for server in state.addresses(front_end.SERVICE):
        if front_end.redis_of(server) not in spared and front_end.stop(
            server, config.redis_address if config else None
        ):
            say(f"Stopped the HTTP front end on port {server.port}")
            stopped = True
    for client in _flinks(config):
        stopped |= _stop_all(client, config)
    for flink in _flink_clusters(config):
        if flink_cluster.stop(flink):
            say(f"Stopped Flink on port {flink.port}")
            stopped = True
    for redis in _redis_servers(config):
        if redis in kept:
            continue
        had_data = redis_server.size_on_disk(redis) > 0
        if redis_server.stop(redis, keep_data):
            fate = "kept its data" if keep_data else "removed its data: queued requests and results"
            say(f"Stopped Redis on port {redis.port} and {fate}")
            stopped = True
        elif had_data and not keep_data:
            say(f"Removed the data of Redis on port {redis.port}, which did not run")
            stopped = True
    return stopped


def _redis_servers(config: Config | None) -> list[Address]:
    return [config.redis_address] if config else state.addresses(redis_server.SERVICE)


def _flink_clusters(config: Config | None) -> list[Address]:
    if config is None:
        return state.addresses(flink_cluster.SERVICE)
    # The other targets have nothing to do with the Flink at `flinkRestUrl`.
    return [config.flink_address] if config.target in ("local", "remote") else []


def _flinks(config: Config | None, all: bool = False) -> list[AbstractContextManager[Flink]]:
    """Return clients of the Flinks whose jobs are stopped by `shut_down`; with `all`, also of those that are down."""
    if config:
        target = target_of(config)
        return [target.flink()] if all or target.is_up() else []
    # Logs may be all that is left of a cluster that was started here, and another one may have its port.
    ours = [address for address in _flink_clusters(config) if all or flink_cluster.is_ours(address)]
    return [FlinkRest(f"http://{address}") for address in ours if all or is_listening(address)]


def _goes_on(config: Config | None, job: Job) -> bool:
    """Return True if a job is one of others who share a Flink that was not started here."""
    if config is None or flink_cluster.is_ours(config.flink_address):
        return False
    with opened(config, job.name) as store:
        return foreign_jobs.are_foreign(store, target_of(config).records, [job])


def _stop_all(client: AbstractContextManager[Flink], config: Config | None) -> bool:
    with client as flink:
        try:
            jobs = flink.jobs()
            for job in jobs:
                if _goes_on(config, job):
                    say(f"Job {job.name} goes on: it was started elsewhere, with another Redis")
                    continue
                say(f"Stopping job {job.name}")
                if config is None:
                    # The Redis of the job is removed too, so it needs no note there.
                    flink.cancel(job.id)
                else:
                    with lock.for_job(config, job.name, say):
                        cancel(flink, job, config, say)
        except LaunchError as error:
            # Not raised: a cluster that was started here is stopped all the same.
            say(str(error))
            return False
        return bool(jobs)
