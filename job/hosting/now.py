"""The models of a job as they are now: those of its start, and what has been changed since, which Redis has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cluster_serving.job.options import HostedOptions, JobOptions
from cluster_serving.protocol.hosting.orders import CHANGED, KEPT_OUT, OPTIONS
from cluster_serving.protocol.keys import JobKeys, as_text


def read(client: Any, options: JobOptions) -> dict[str, dict[str, str]]:
    """Return the fields of the record of each model that tell of a change, by the name of the model.

    Raises:
        redis.RedisError: If Redis cannot be used.
    """
    started = [one.name for one in options.hosted]
    # A Redis that has lost all has lost the changes, too.
    names = [as_text(name) for name in client.hgetall(JobKeys(options.redis.job).models)] or started
    found: dict[str, dict[str, str]] = {}
    for name in sorted(names):
        fields = OPTIONS, KEPT_OUT, CHANGED
        known = [as_text(each or b"") for each in client.hmget(JobKeys(name).record, *fields)]
        if known[0] or name in started:
            found[name] = dict(zip(fields, known, strict=True))
    return found


def options_of(options: JobOptions, name: str, kept: dict[str, str]) -> HostedOptions:
    """Return the options of a model, given the fields of its record."""
    if text := kept[OPTIONS]:
        return ordered(options, text)
    return next(one for one in options.hosted if one.name == name)


def ordered(options: JobOptions, text: str) -> HostedOptions:
    """Return the options of a model from those of an order, which have no keys: these are the job's."""
    [one] = JobOptions.from_json(text).hosted
    return replace(one, image=replace(one.image, record_key=options.image.record_key))
