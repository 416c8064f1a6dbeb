"""The health check of a container, for `healthcheck:` of Compose and for probes of Kubernetes."""

import socket
from collections.abc import Mapping
from typing import Any

from redis.exceptions import RedisError

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.container import roles
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.redis.connection import open_redis


def problem() -> str | None:
    """Return what keeps this container from its work, or None if it does its work.

    A JobManager answers at its REST endpoint, and a TaskManager is listed there. An `application` is healthy while its
    job runs and all its slots have loaded the model. A container without a role is healthy.
    """
    if not roles.role_file().exists():
        return None
    role = roles.role_file().read_text()
    try:
        with FlinkRest(_address(role, roles.properties())) as rest:
            if role == "taskmanager":
                hosts = {address.rpartition(":")[0] for address in rest.task_managers().values()}
                listed = socket.gethostbyname(socket.gethostname()) in hosts
                return None if listed else "the JobManager does not list this TaskManager"
            if rest.overview() is None:
                return f"Flink does not answer at {rest.url}"
            return _missing_slots(rest) if role == "application" else None
    except (LaunchError, ServingError, RedisError, OSError) as error:
        return str(error)


def _address(role: str, given: Mapping[str, Any]) -> str:
    host = given.get("rest.address" if role == "taskmanager" else "rest.bind-address", "localhost")
    return f"http://{'localhost' if host == '0.0.0.0' else host}:{given.get('rest.port', 8081)}"  # noqa: S104


def _missing_slots(rest: FlinkRest) -> str | None:
    options = JobOptions.from_json(roles.options_file().read_text("utf8"))
    job = options.redis.job
    state = next((running.state for running in rest.jobs(job)), "not there")
    if state != "RUNNING":
        return f"job {job} is {state}"
    with open_redis(options.redis.url, job, decode_responses=True) as client:
        slots = [slot for slot in JobStore(client, job).slots() if slot.submission == options.submission]
    if failed := [slot.error for slot in slots if slot.state == "failed"]:
        return failed[0]
    ready = sum(slot.state == "ready" for slot in slots)
    # The adaptive scheduler runs the job with the slots that there are.
    adapts = str(roles.properties().get("jobmanager.scheduler", "")).lower() == "adaptive"
    if ready < (1 if adapts else options.model_parallelism):
        return f"{ready} of {options.model_parallelism} slots have loaded the model"
    return None
