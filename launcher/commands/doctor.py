"""What the commands and a job need of this machine and of their servers, each checked, with what to do about it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from redis.exceptions import RedisError

from cluster_serving.job.models.folder import check_model
from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.config import repository, versions
from cluster_serving.launcher.config.job_options import model_options
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import foreign_keys
from cluster_serving.launcher.jobs.store import opened
from cluster_serving.launcher.services import flink_cluster, flink_home, front_end, memory, redis_server, state
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.services.process import is_listening
from cluster_serving.launcher.services.redis_version import RedisVersion
from cluster_serving.launcher.shipping.inspection import shown
from cluster_serving.launcher.targets import target_of
from cluster_serving.protocol.errors import ServingError
from cluster_serving.settings.errors import SettingsError

OK, WARNING, FAILED = "ok", "warning", "failed"

_GIB = 1 << 30
_LEAST_DISK, _LEAST_MEMORY = 2 * _GIB, _GIB
_MOST_SKEW_S = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: its topic, `OK`, `WARNING` or `FAILED`, and what was found and what to do."""

    topic: str
    state: str
    text: str


def examine(config: Config, path: Path) -> Iterator[Finding]:
    """Yield the result of each check; none of them changes anything."""
    checks: dict[str, Callable[[], tuple[str, str]]] = {
        "python": _python,
        "java": lambda: (OK, f"Java at {flink_home.java_home()}"),
        "redis": lambda: _redis(config),
        "clock": lambda: _clock(config),
        "flink": lambda: _flink(config),
        "model": lambda: _model(config),
        "memory": lambda: _memory(config),
        "disk": _disk,
        "front end": lambda: _front_end(config, path),
    }
    for topic, check in checks.items():
        try:
            yield Finding(topic, *check())
        except (LaunchError, SettingsError, ServingError, RedisError, OSError) as error:
            yield Finding(topic, FAILED, str(error))


def _python() -> tuple[str, str]:
    return OK, f"Python {sys.version.split()[0]} at {sys.prefix}"


def _redis(config: Config) -> tuple[str, str]:
    # One that cannot be started here, or that hangs, is an error.
    redis_server.check_usable(config)
    if not (config.redis_has_failover or is_listening(config.redis_address)):
        return WARNING, f"no Redis runs at {config.redis_shown}; cluster-serving-start starts one on this machine"
    with redis_server.connect(config) as client:
        version, used = RedisVersion.read(client.info("server")), client.info("memory")
        foreign = foreign_keys.told(client, config.job_name)
    if foreign:
        return FAILED, foreign
    if version.fixed:
        return WARNING, f"{version} has known holes; upgrade it to {version.fixed}"
    limit = used["maxmemory"]
    if limit and used["used_memory"] > 0.8 * limit:
        share = used["used_memory"] / limit
        return WARNING, f"{version} uses {share:.0%} of its memory limit; raise maxmemory, or remove what is not needed"
    return OK, f"{version} at {config.redis_shown}"


def _answers(config: Config) -> bool:
    with redis_server.connect(config) as client:
        try:
            return bool(client.ping())
        except (RedisError, OSError, ServingError):
            return False


def _clock(config: Config) -> tuple[str, str]:
    if not _answers(config):
        return OK, "not compared, as no Redis answers"
    with redis_server.connect(config) as client:
        before = time.time()
        seconds, microseconds = client.time()
        skew = seconds + microseconds / 1e6 - (before + time.time()) / 2
    if abs(skew) > _MOST_SKEW_S:
        return WARNING, f"the clock of Redis differs by {skew:.1f} s from this machine's; let both follow an NTP server"
    return OK, f"differs by {1000 * abs(skew):.0f} ms from that of Redis"


def _flink(config: Config) -> tuple[str, str]:
    target = target_of(config)
    target.check()
    if not target.is_up():
        if flink_cluster.is_ours(config.flink_address):
            return WARNING, f"Flink at {config.flink_address} does not answer; its supervisor starts it again"
        if target.is_here:
            return WARNING, "no Flink runs; cluster-serving-start starts one on this machine"
        return FAILED, f"Flink does not answer at {config.flink_address}; start it, or correct flinkRestUrl"
    with target.flink() as flink:
        jobs = flink.jobs()
        told = f"{len(jobs)} job{'s' * (len(jobs) != 1)} on {flink.where}"
        if jobs and isinstance(flink, FlinkRest) and not flink.task_managers():
            return WARNING, f"{told}, but no TaskManager: nothing runs until there is one (cluster-serving-cli status)"
        return OK, told


def _model(config: Config) -> tuple[str, str]:
    if several := repository.find(shown(config)):
        place = repository.place(config.model_path)
        if problem := repository.problem(config, several) or repository.misplacement(config, several.misplaced):
            return FAILED, f"{place} holds several models: {problem}"
        # Those at an address are checked where they are fetched.
        refused = {} if is_url(config.model_path) else _refused(config, several.names)
        refused |= _failed(config, several.names)
        told = [f"{name} ({reason})" for name, reason in refused.items()]
        good = [name for name in several.names if name not in refused]
        state = (WARNING if good else FAILED) if refused else OK
        missing = f"; not served: {'; '.join([*told, *several.ignored])}" if told or several.ignored else ""
        of = f"{len(good)} of " if refused else ""
        return state, f"{of}{len(several.names)} models in {place}: {', '.join(good) or 'none'}{missing}"
    found = check_model(model_options(versions.resolved(config)))
    return OK, f"{found.format} in {config.model_path}"


def _refused(config: Config, names: Sequence[str]) -> dict[str, str]:
    """Return the models of a folder that a start would refuse, with the reasons; none is loaded for that."""
    found = {}
    for name in names:
        try:
            one = repository.model_in(config, Path(config.model_path, name))
            check_model(model_options(versions.resolved(one)))
        except (SettingsError, ServingError) as error:
            found[name] = str(error)
    return found


def _failed(config: Config, names: Sequence[str]) -> dict[str, str]:
    """Return those that the running job could not load, with its reasons."""
    if not _answers(config):
        return {}
    with opened(config) as store:
        reports = store.models()
    return {
        name: report.error or "failed" for name, report in reports.items() if report.state == "failed" and name in names
    }


def _memory(config: Config) -> tuple[str, str]:
    free, total = memory.available_memory(), memory.total_memory()
    told = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB are free"
    if target_of(config).is_here and free < _LEAST_MEMORY:
        return WARNING, f"{told}; end other programs, or set a smaller modelParallelism"
    return OK, told


def _disk() -> tuple[str, str]:
    folder = state.root()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    told = f"{free / _GIB:.1f} GiB are free at {folder}"
    return (OK, told) if free >= _LEAST_DISK else (WARNING, f"{told}; remove files, or logs of ended jobs")


def _front_end(config: Config, path: Path) -> tuple[str, str]:
    if not path.exists():
        return OK, "has no options, as there is no configuration file"
    front_end.check(config, path, True)
    return OK, "its options are valid, and its ports are free or its own"
