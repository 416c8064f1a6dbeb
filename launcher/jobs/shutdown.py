"""Shutdown of all that was started here: jobs, front ends, Flink and Redis."""

from contextlib import ExitStack, suppress

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import resubmit
from cluster_serving.launcher.jobs.lifecycle import Say, cancel, locked
from cluster_serving.launcher.services import flink_cluster, front_end, redis_data, redis_server, state
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.services.process import is_listening
from cluster_serving.settings.addresses import Address


def losses(config: Config | None) -> str:
    """Return in words what `shut_down` without `keep_data` would lose, and the jobs that it would stop.

    The result is empty if nothing would be lost.
    """
    lost = [text for redis in _redis_servers(config) if (text := redis_data.describe(redis))]
    if not lost:
        return ""
    jobs = []
    for url in _flink_urls(config):
        with suppress(LaunchError), FlinkRest(url) as rest:
            jobs += [job.name for job in rest.jobs()]
    return f"{'; '.join(lost)}; running jobs: {', '.join(jobs) or 'none'}"


def shut_down(config: Config | None, say: Say, keep_data: bool = False) -> bool:
    """Stop all jobs, and the Redis and Flink that were started here; the data of that Redis is removed.

    Return True if there was anything to stop. Without a configuration, all that was started here is stopped. With
    `keep_data`, the data of Redis wait for the next start.
    """
    with ExitStack() as stack:
        for flink in _flink_clusters(config):
            # A resubmission that waits for slots ends when there is nothing left to submit.
            resubmit.forget_all(flink_cluster.folder(flink))
            stack.enter_context(flink_cluster.submitting(flink, say))
        return _stop_services(config, say, keep_data)


def _stop_services(config: Config | None, say: Say, keep_data: bool) -> bool:
    stopped = False
    for server in state.addresses(front_end.SERVICE):
        if front_end.stop(server, config.redis_address if config else None):
            say(f"Stopped the HTTP front end on port {server.port}")
            stopped = True
    for url in _flink_urls(config):
        stopped |= _stop_all(url, config, say)
    for flink in _flink_clusters(config):
        if flink_cluster.stop(flink):
            say(f"Stopped Flink on port {flink.port}")
            stopped = True
    for redis in _redis_servers(config):
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
    return [config.flink_address] if config else state.addresses(flink_cluster.SERVICE)


def _flink_urls(config: Config | None) -> list[str]:
    """Return the URLs of the clusters whose jobs are stopped by `shut_down`."""
    if config:
        return [config.flink_rest_url] if is_listening(config.flink_address) else []
    # Logs may be all that is left of a cluster that was started here, and another one may have its port.
    ours = filter(flink_cluster.is_ours, _flink_clusters(config))
    return [f"http://{address}" for address in ours if is_listening(address)]


def _stop_all(flink_rest_url: str, config: Config | None, say: Say) -> bool:
    with FlinkRest(flink_rest_url) as rest:
        try:
            jobs = rest.jobs() if rest.overview() else []
            for job in jobs:
                say(f"Stopping job {job.name}")
                if config is None:
                    # The Redis of the job is removed too, so it needs no note there.
                    rest.cancel(job.id)
                else:
                    with locked(config, job.name, say, say):
                        cancel(rest, job, config, say)
        except LaunchError as error:
            # Not raised: a cluster that was started here is stopped all the same.
            say(str(error))
            return False
        return bool(jobs)
