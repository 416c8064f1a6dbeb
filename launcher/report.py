"""Texts about jobs that the commands print."""

from typing import cast

import redis
from redis.exceptions import RedisError, ResponseError
from rich.table import Table
from rich.text import Text

from cluster_serving.launcher.jobs.lifecycle import Started
from cluster_serving.launcher.jobs.readiness import read_slots
from cluster_serving.launcher.services.flink_rest import FlinkRest, Job
from cluster_serving.protocol.keys import GROUP, PRIORITIES, answered_key, stream_of, streams_of
from cluster_serving.protocol.slots import SlotReport


def started(job: Started) -> Text:
    """Return the facts about a job that has just been started."""
    config = job.config
    where = "" if config.redis_url == "redis://localhost:6379" else f', url="{config.redis_shown}"'
    lines = {
        "job": config.job_name,
        "model": job.model,
        "slots": f"{config.model_parallelism}, {config.thread_per_model} thread(s) each, {config.execution_mode} mode",
        "stream": f"{config.job_name} on {config.redis_shown}",
        "Flink UI": job.page,
        "send": f"""from cluster_serving.client import InputQueue
InputQueue(name="{config.job_name}"{where}).predict(...)""".replace("\n", "\n" + " " * 10),
        "stop": f"cluster-serving-stop {config.job_name}",
    }
    return Text("Ready\n") + Text("\n").join(Text(f"{key:>8}  {value}") for key, value in lines.items())


def status(job: Job, rest: FlinkRest, client: redis.Redis) -> Table:
    """Return a table with the state of a job, its slots and its queue."""
    table = Table.grid(padding=(0, 2))
    for key, value in (
        ("job", f"{job.name} ({job.id})"),
        ("state", f"{job.state} for {duration(job.seconds)}, {rest.restarts(job.id)} restarts"),
        ("slots", str(rest.parallelism(job.id))),
        *((f"slot {slot.index}", _slot(slot)) for slot in read_slots(client, job.name)),
        ("queue", _queue(client, job.name)),
        ("records", f"{answered(client, job.name)} answered since cluster-serving-start"),
    ):
        table.add_row(key, value)
    return table


def answered(client: redis.Redis, job: str) -> str:
    """Return the number of requests answered since the last `cluster-serving-start`; `?` if Redis does not answer."""
    try:
        return str(client.get(answered_key(job)) or 0)
    except RedisError:
        return "?"


def duration(seconds: float) -> str:
    """Return a time in words, such as 3 s, 2 min 5 s, 4 h 10 min or 3 d 2 h."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    shown = [f"{value} {unit}" for value, unit in parts if value]
    return " ".join(shown[:2]) or "0 s"


def _slot(report: SlotReport) -> str:
    return report.model if report.state == "ready" else report.error or report.state


def _queue(client: redis.Redis, job: str) -> str:
    lengths = {priority: cast("int", client.xlen(stream_of(job, priority))) for priority in PRIORITIES}
    parts = ", ".join(f"{length} {priority}" for priority, length in lengths.items())
    pending = sum(_pending(client, stream) for stream in streams_of(job))
    return f"{sum(lengths.values())} requests ({parts}), {pending} of them being worked on"


def _pending(client: redis.Redis, stream: str) -> int:
    try:
        return int(cast("dict[str, int]", client.xpending(stream, GROUP))["pending"])
    except ResponseError:
        # The stream or its group is gone, for instance after FLUSHALL.
        return 0
