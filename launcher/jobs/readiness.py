"""Readiness of the task slots of a job, from the reports that they write to Redis."""

import time

from redis.exceptions import RedisError

from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.services.flink_rest import ENDED, Flink
from cluster_serving.protocol.slots import SlotReport

_UNTOLD = "the slot gave no reason; cluster-serving-cli logs --errors has the lines of Flink"


def wait_ready(
    store: JobStore, flink: Flink, config: Config, job_id: str, submission: str, generation: int | None = None
) -> SlotReport:
    """Wait until all slots of a submission are ready and the job runs. Return the report of a slot that is ready.

    The job also runs with the slots that could load the model, if the others have failed to: Flink tries them again.
    A generation beside the one that serves needs all of its slots.

    Reports of earlier submissions do not count; `generation` is as for `JobStore.slots`.

    Raises:
        LaunchError: If the model cannot be loaded, the job fails, or slots are not ready within `startTimeout`.
    """
    needed = config.slots

    def good_slots() -> list[SlotReport]:
        try:
            slots = [s for s in store.slots(generation) if s.submission == submission]
        except (RedisError, OSError) as error:
            raise LaunchError(
                f"Redis stopped answering while the job started: {error}; start the job again when Redis answers"
            ) from None
        failed = [slot for slot in slots if slot.has_failed]
        if failed and (generation is not None or len(failed) >= needed):
            raise LaunchError(failed[0].error or _UNTOLD)
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
                say(f"Slot {slot.index} cannot load the model, and is tried again: {slot.error or _UNTOLD}")
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
            what = f"Loading the model in {needed} slot{'s' * (needed != 1)}"
            say(f"{what}: {last_count} ready" if last_count else what)
        if time.monotonic() > deadline:
            lacking = f" and waits for {wait}" if wait else ""
            raise LaunchError(
                f"after {config.start_timeout} s (startTimeout) {last_count} of {needed} slots are ready, "
                f"{len(slots) - last_count} are loading the model, and the job is {state}{lacking}; "
                f"see {flink.page(job_id)}"
            )
        time.sleep(0.1)
