"""Readiness of the task slots of a job, from the reports that they write to Redis."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import redis
from redis.exceptions import RedisError

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_rest import ENDED
from cluster_serving.launcher.targets.base import Flink
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.scripts import PUT_FIELDS, Call, call
from cluster_serving.protocol.slots import SILENT_AFTER_S, SlotReport, read_reports


def read_slots(
    client: redis.Redis, job: str, generation: int | None = None, silent_after: float = SILENT_AFTER_S
) -> list[SlotReport]:
    """Return the reports of a job's slots, by index: those of the generation that serves, or of another one."""
    # redis-py declares one type for its blocking and its asyncio client.
    seconds, _ = cast("tuple[int, int]", client.time())
    return read_reports(cast("dict[str, str]", client.hgetall(JobKeys(job).slots(generation))), seconds, silent_after)


def announce(client: redis.Redis, job: str, submission: str, parallelism: int, generation: int | None = None) -> None:
    """Report all slots of a job that is about to be submitted as loading, in place of all earlier reports.

    The reports describe the model that the job had before, so that front ends can queue requests for it meanwhile. With
    `generation`, they are those of a generation beside the one that serves. The client has replies as text.

    Raises:
        redis.RedisError: If Redis does not take the reports.
    """
    before = next((report for report in read_slots(client, job) if report.engine), SlotReport("", ""))
    report = replace(before, submission=submission, state="loading", time=time.time(), attempt="")
    fields: list[str] = []
    for index in range(parallelism):
        fields += [str(index), replace(report, index=index).to_json()]
    call(client, Call(PUT_FIELDS, [JobKeys(job).slots(generation)], ["all", *fields]))


def note_stopped(client: redis.Redis, job: str, submission: str | None, keep_failures: bool = False) -> None:
    """Change the reports of a stopped job's slots to stopped, in one transaction.

    Reports of other submissions stay as they are; None means all. With `keep_failures`, slots that could not load the
    model go on to say why. The client has replies as text.

    Raises:
        redis.RedisError: If Redis does not take the change.
    """
    key = JobKeys(job).slots()

    def change(pipeline: redis.client.Pipeline) -> None:
        reports = read_reports(cast("dict[str, str]", pipeline.hgetall(key)))
        pipeline.multi()
        for report in reports:
            if submission in (None, report.submission) and not (keep_failures and report.state == "failed"):
                stopped = replace(report, state="stopped", code=None, error=None)
                pipeline.hset(key, str(report.index), stopped.to_json())

    client.transaction(change, key)


def wait_ready(
    client: redis.Redis,
    flink: Flink,
    config: Config,
    job_id: str,
    submission: str,
    say: Callable[[str], None],
    generation: int | None = None,
) -> SlotReport:
    """Wait until all slots of a submission are ready and the job runs. Return the report of a slot that is ready.

    The job also runs with the slots that could load the model, if the others have failed to: Flink tries them again.
    A generation beside the one that serves needs all of its slots.

    Reports of earlier submissions do not count; `generation` is as for `read_slots`. The client of Redis has replies as
    text.

    Raises:
        LaunchError: If the model cannot be loaded, the job fails, or slots are not ready within `startTimeout`.
    """
    needed = config.slots

    def good_slots() -> list[SlotReport]:
        try:
            slots = [s for s in read_slots(client, config.job_name, generation) if s.submission == submission]
        except (RedisError, OSError) as error:
            raise LaunchError(f"Redis stopped answering while the job started: {error}") from None
        failed = [slot for slot in slots if slot.has_failed]
        if failed and (generation is not None or len(failed) >= needed):
            raise LaunchError(failed[0].error or "a slot could not load the model")
        return slots

    deadline = time.monotonic() + config.start_timeout
    last_count, last_wait = -1, ""
    while True:
        slots = good_slots()
        ready = [slot for slot in slots if slot.state == "ready"]
        failed = [slot for slot in slots if slot.has_failed]
        state = flink.state(job_id)
        # While a slot waits for its next attempt, Flink calls the whole job restarting.
        runs = state == "RUNNING" or (failed and state == "RESTARTING")
        if ready and len(ready) + len(failed) >= needed and runs:
            for slot in failed:
                say(f"Slot {slot.index} cannot load the model, and is tried again: {slot.error}")
            return ready[0]
        cause = flink.root_cause(job_id)
        if (cause and not failed) or state in ENDED:
            # What a slot has reported since says more.
            good_slots()
            raise LaunchError(f"the job failed while it started: {cause or state}")
        wait = flink.waits_for(job_id)
        if wait and wait != last_wait:
            say(f"The job waits for {wait}")
        last_wait = wait
        if len(ready) != last_count:
            last_count = len(ready)
            say(f"Loading the model: {last_count} of {needed} slots ready")
        if time.monotonic() > deadline:
            lacking = f" and waits for {wait}" if wait else ""
            raise LaunchError(
                f"after {config.start_timeout} s (startTimeout) {last_count} of {needed} slots are ready, "
                f"{len(slots) - last_count} are loading the model, and the job is {state}{lacking}; "
                f"see {flink.page(job_id)}"
            )
        time.sleep(0.1)
