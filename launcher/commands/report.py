"""Texts about jobs that the commands print."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.jobs.layout import PROVISIONAL
from cluster_serving.launcher.rollout import comparison
from cluster_serving.launcher.terminal import printable
from cluster_serving.protocol.generations import CANARY, SERVING, SHADOW
from cluster_serving.protocol.slots import SlotReport
from cluster_serving.settings.errors import SettingsError

# A command prints the results of its own modules, and imports no others.
if TYPE_CHECKING:
    from cluster_serving.launcher.jobs.hosted import HostedModel
    from cluster_serving.launcher.jobs.job_status import GenerationStatus, JobStatus
    from cluster_serving.launcher.jobs.layout.decision import Tuned
    from cluster_serving.launcher.jobs.lifecycle import Started
    from cluster_serving.launcher.jobs.recent import Recent
    from cluster_serving.launcher.rollout.change import Changed

_PLACES = ("flink_rest_url", "flink_target", "redis_url")
"""Keys of the configuration that say where a job is."""


def started(job: Started, path: Path) -> Text:
    """Return the facts about a job that has just been started by the configuration file `path`."""
    config = job.config
    redis = config.redis_shown
    has_password = config.redis_url != config.redis_shown
    where = "" if redis == "redis://localhost:6379" and not has_password else f', url="{redis}"'
    lines = {
        "job": config.job_name,
        "models" if job.models else "model": job.model,
        "slots": f"{config.slots}, {config.thread_per_model or 1} thread(s) each, {config.execution_mode} mode",
        "layout": job.layout,
        "stream": f"{'one for each model' if job.models else config.job_name} on {redis}",
        "Flink UI": job.page,
        "send": f"""from cluster_serving.client import InputQueue
InputQueue(name="{job.models[0] if job.models else config.job_name}"{where}).predict(...)""".replace(
            "\n", "\n" + " " * 10
        ),
        "stop": _stop(config, path),
    }
    return Text("Ready\n") + Text("\n").join(Text(f"{key:>8}  {value}") for key, value in lines.items() if value)


def changed(change: Changed) -> Text:
    """Return what a change of a job came to, and what clients saw meanwhile."""
    share = {CANARY: "gets its share of the requests", SHADOW: "computes copies of its share of the requests"}
    lines = {"generation": f"{change.number} {share.get(change.role, 'serves')}", "meanwhile": change.meanwhile}
    if change.role in share:
        lines["next"] = "cluster-serving-cli promote, or cluster-serving-cli rollback"
    return Text("\n").join(Text(f"{key:>10}  {value}") for key, value in lines.items())


def listed(jobs: Sequence[JobStatus]) -> Group:
    """Return a table of jobs, beneath it what to know of them: last errors, controllers, provisional layouts."""
    table = Table(
        "name", "state", "job id", "version", "slots", "for", "answered", "dead letters", box=None, header_style="bold"
    )
    for job in jobs:
        versions = ", ".join(_version(generation) for generation in job.generations)
        dead = str(job.dead_letters or "")
        since = job.failure_time if job.state == "RUNNING" else None
        age = _age(job) if _lasts(job) else duration(time.time() - since) if since else ""
        table.add_row(job.name, job.state, job.job_id, versions, str(job.slots or ""), age, _answered(job), dead)
    errors = [f"{job.name}: {_error(job)}" for job in jobs if job.error and not job.is_well]
    controllers = [f"{job.name}: controller: {printable(job.controller)}" for job in jobs if job.controller]
    elsewhere = [f"{job.name}: in {printable(job.flink)}, not the Flink of this command" for job in jobs if job.flink]
    layouts = [f"{job.name}: layout {printable(job.layout)}" for job in jobs if job.runs and PROVISIONAL in job.layout]
    models = [f"{job.name}: {_summary(job.hosted)}" for job in jobs if job.hosted]
    return Group(table, *elsewhere, *models, *errors, *controllers, *layouts)


def status(job: JobStatus, queued: Mapping[str, int]) -> Text:
    """Return lines with the state of a job, its slots and its queue."""
    lines = {"job": f"{job.name} ({job.job_id})" if job.job_id else job.name}
    lines["state"] = f"{job.state} for {_age(job)}" if _lasts(job) else job.state
    if job.since and not _lasts(job):
        lines["state"] += f", started {_age(job)} ago"
    if job.job_id:
        lines["state"] += f", {_times(job.restarts)}"
    if job.failure_time:
        lines["state"] += f", the last failure at {_clock(job.failure_time)}"
    if job.runs:
        lines["slots"] = _slots(job)
    if job.flink:
        lines["Flink"] = f"{printable(job.flink)}, not the one of this command"
    differ = len({report.restarts for report in job.reports}) > 1
    lines |= {f"slot {report.index}": _slot(report, differ, bool(job.hosted)) for report in job.reports}
    lines |= {one.name: _hosted(one) for one in job.hosted}
    if len(job.generations) > 1:
        lines |= {f"generation {each.number}": _generation(each) for each in job.generations}
    if job.comparison:
        lines |= comparison.lines(job.comparison)
    *waiting, pending = queued.items()
    parts = ", ".join(f"{length} {priority}" for priority, length in waiting)
    total = sum(length for _, length in waiting)
    # Nothing of a job is in a Redis that is not its own.
    known = job.answered is not None
    lines["queue"] = f"{total} requests ({parts}), {pending[1]} of them {_place(job, pending[1])}" if known else "?"
    lines["records"] = f"{_answered(job)} answered since cluster-serving-start"
    if job.recent:
        lines |= _recent(job.recent)
    if job.dead_letters and not job.hosted:
        lines["dead letters"] = f"{job.dead_letters}; cluster-serving-cli dead list {job.name} shows them"
    if job.layout:
        lines["layout"] = job.layout
    if job.controller:
        lines["controller"] = printable(job.controller)
    if job.error:
        lines["last error"] = " ".join(filter(None, [_clock(job.error_time), printable(job.error)]))
    if job.log:
        lines["log"] = job.log
    return Text("\n").join(Text(f"{key:<12}  {value}") for key, value in lines.items())


def details(job: JobStatus, queued: Mapping[str, int]) -> dict[str, Any]:
    """Return the state of a job, its slots and its queue, ready for JSON."""
    models = [
        {
            "slot": report.index,
            "state": report.state,
            "model": report.model,
            "device": report.device,
            "error": report.error or "",
            "restarts": report.restarts,
        }
        for report in job.reports
    ]
    compared = job.comparison and comparison.details(job.comparison)
    recent = job.recent and asdict(job.recent)
    return job.summary() | {"models": models, "queue": dict(queued), "comparison": compared, "recent": recent}


def tuned(found: Tuned) -> Group:
    """Return the table of a measurement of layouts, and the one that is best."""
    table = Table("copies", "threads", "batch", "records/s", "ms per batch", box=None, header_style="bold")
    for each in sorted(found.figures, key=lambda figure: (figure.copies, figure.threads, figure.batch)):
        style = "bold" if each.layout == found.layout else None
        numbers = (each.copies, each.threads, each.batch, f"{each.rate:.0f}", f"{each.batch_ms:.1f}")
        table.add_row(*map(str, numbers), style=style)
    return Group(table, found.text)


def duration(seconds: float) -> str:
    """Return a time in words, such as 3 s, 2 min 5 s, 4 h 10 min or 3 d 2 h."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    shown = [f"{value} {unit}" for value, unit in parts if value]
    return " ".join(shown[:2]) or "0 s"


def _stop(config: Config, path: Path) -> str:
    """Return the command that stops a job, with the file if the command would not find the job without it."""
    words = ["cluster-serving-stop", config.job_name]
    try:
        found = config_file.read(Path(config_file.FILE_NAME), missing_ok=True)
    except SettingsError:
        found = None
    if found is None or any(getattr(found, key) != getattr(config, key) for key in _PLACES):
        words += ["-c", str(path)]
    return shlex.join(words)


def _version(generation: GenerationStatus) -> str:
    return generation.version if generation.role == SERVING else f"{generation.version} ({generation.role})"


def _generation(generation: GenerationStatus) -> str:
    share = f" with {generation.share:g} %" if generation.share else ""
    text = f"{generation.role}{share}, version {generation.version}, {generation.state or 'not in Flink'}"
    text += f"; {generation.answered} answered, {generation.failed} of them with an error"
    if not generation.answered:
        return text
    return f"{text}; {_within(generation.p50_ms, generation.p99_ms)}"


def _recent(recent: Recent) -> dict[str, str]:
    lines = {"rate": f"{recent.rate:.3g} records/s"}
    if recent.batch_size is not None:
        when = "," if recent.rate else "; before,"
        lines["rate"] += f"{when} {recent.batch_size:.3g} in a batch; {_within(recent.p50_ms, recent.p99_ms)}"
    if recent.oldest_s:
        lines["oldest"] = f"a request has waited for {recent.oldest_s:.3g} s"
    if recent.failed:
        codes = ", ".join(f"{count} {code}" for code, count in recent.failed.items())
        lines["failed"] = f"{sum(recent.failed.values())} records in all: {codes}"
    return lines


def _within(p50_ms: float | None, p99_ms: float | None) -> str:
    half, most = ("more than a minute" if limit is None else f"{limit:g} ms" for limit in (p50_ms, p99_ms))
    return f"half within {half}, 99 % within {most}"


def _hosted(one: HostedModel) -> str:
    told = [one.model, one.error] if one.state == "ready" else [one.state, one.error]
    words = printable((", " if one.state == "ready" else ": ").join(filter(None, told)))
    dead = f", {one.dead_letters} dead letters (cluster-serving-cli dead list {one.name})" if one.dead_letters else ""
    return f"{words}; {one.queued} queued, {one.answered} answered{dead}"


def _summary(models: Sequence[HostedModel]) -> str:
    served = [one.name for one in models if one.state == "ready"]
    others = [f"{one.name} ({one.state})" for one in models if one.state != "ready"]
    return f"{len(served)} of {len(models)} models: {', '.join([*served, *others])}"


def _slot(report: SlotReport, with_restarts: bool, hosts: bool) -> str:
    restarts = f", {_times(report.restarts)}" if with_restarts else ""
    if report.state == "silent":
        return (report.error or "silent: its process has given no sign of life") + restarts
    summary = report.engine if hosts else report.summary
    return (summary if report.state == "ready" else report.error or report.state) + restarts


def _slots(job: JobStatus) -> str:
    return str(job.slots) if job.ready >= job.slots else f"{job.slots}, {job.ready} of them ready"


def _place(job: JobStatus, pending: int) -> str:
    return "being worked on" if job.ready or not pending else "read by slots that do not answer now"


def _times(restarts: int) -> str:
    return f"{restarts} restart{'s' * (restarts != 1)}"


def _clock(at: float | None) -> str:
    """Return a time in words; empty if unknown."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else ""


def _age(job: JobStatus) -> str:
    return duration(time.time() - job.since) if job.since else ""


def _lasts(job: JobStatus) -> bool:
    """Return True if `since` is the time at which the state began, and not that of a start long before a failure."""
    return bool(job.since) and not job.failure_time and (job.state == "RUNNING" or not job.job_id)


def _answered(job: JobStatus) -> str:
    return "?" if job.answered is None else str(job.answered)


def _error(job: JobStatus) -> str:
    at = f"; {_clock(job.error_time)}" if job.error_time else ""
    return printable(job.error) + (f" (log: {job.log})" if job.log else "") + at
