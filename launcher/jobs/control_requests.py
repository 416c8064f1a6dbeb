"""Requests of front ends to load or unload the model of a job, as the controller of the job gets them."""

from dataclasses import replace
from typing import cast

import redis

from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.model_control import OUTCOME_TTL_S, UNLOADED, ControlRequest, encode_outcome
from cluster_serving.protocol.scripts import PUT_FIELDS, Call, call, flat
from cluster_serving.protocol.slots import read_reports


def take(client: redis.Redis, job: str) -> ControlRequest | None:
    """Return the next request, which is not in the list any more; None if there is none. Expired ones are dropped.

    The client has replies as text.
    """
    while text := cast("str | None", client.lpop(JobKeys(job).control)):
        request = ControlRequest.from_json(text)
        seconds, _ = cast("tuple[int, int]", client.time())
        if seconds < request.expires:
            return request
    return None


def finish(client: redis.Redis, job: str, request: ControlRequest, error: ServingError | None) -> None:
    """Tell the front end what has come of its request; `error` is None if it was carried out."""
    key = JobKeys(job).control_outcome(request.id)
    call(client, Call(PUT_FIELDS, [key], ["all", *flat(encode_outcome(error))]))
    client.expire(key, OUTCOME_TTL_S)


def note_unloaded(client: redis.Redis, job: str) -> None:
    """Change the reports of the slots of a stopped job: requests for it are refused until it is started again."""
    reports = read_reports(cast("dict[str, str]", client.hgetall(JobKeys(job).slots())))
    fields: list[str] = []
    for report in reports:
        if report.state == "stopped":
            fields += [str(report.index), replace(report, state=UNLOADED).to_json()]
    if fields:
        call(client, Call(PUT_FIELDS, [JobKeys(job).slots()], ["some", *fields]))
