"""What the Redis of a job keeps of it, as the commands read and write it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import redis
from redis.exceptions import RedisError, ResponseError

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.jobs import foreign_keys
from cluster_serving.launcher.services import redis_server
from cluster_serving.launcher.services.process import this_command
from cluster_serving.protocol.events import Event
from cluster_serving.protocol.events import record as record_event
from cluster_serving.protocol.figures.comparison import Comparison
from cluster_serving.protocol.figures.exposition import Reading, questions
from cluster_serving.protocol.figures.stats import JobStats
from cluster_serving.protocol.generations import CANARY, LAST, VERSION, Generation, Generations
from cluster_serving.protocol.hosting.models import read_models
from cluster_serving.protocol.keys import GROUP, JOBS_KEY, PAYLOAD_FOLDER, SECRET_FIELDS, JobKeys
from cluster_serving.protocol.scripts import HAND_OVER_ALL, PUT_FIELDS, SWITCH, Argument, Call, call, flat
from cluster_serving.protocol.slots import SILENT_AFTER_S, SlotReport, read_reports


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What the commands did with a job last, for `list` and `status` on every machine.

    Attributes:
        state: `starting`, `running`, `stopped` or `failed`; empty if no command has recorded it.
        since: Time of the last change of the state in seconds since the epoch; 0 if unknown.
        error: The last error; empty after a start that succeeded.
        log: File with the output of the last start, and the trace of its error.
        host: Machine of that file.
        layout: Copies, threads and batches of the job in words; empty if it runs on other machines.
        error_time: Time of the last error in seconds since the epoch; 0 if unknown.
    """

    state: str = ""
    since: float = 0.0
    error: str = ""
    log: str = ""
    host: str = ""
    layout: str = ""
    error_time: float = 0.0

    @property
    def place(self) -> str:
        """The log, with its machine if that is another one."""
        return self.log if self.host in ("", socket.gethostname()) else f"{self.log} on {self.host}"


class JobStore:
    """Record, generations, slots and totals of a job. Each method raises `redis.RedisError` if Redis cannot be used.

    The client has replies as text.
    """

    def __init__(self, client: redis.Redis, job: str) -> None:
        # redis-py types its commands as if they might be awaitable.
        self.client: Any = client
        self.job = job
        self.keys = JobKeys(job)

    def write(self, key: str, fields: Sequence[Argument], anew: bool = False) -> None:
        """Write fields of a hash, names and values in turn, also if Redis is full; with `anew`, delete all others."""
        call(self.client, Call(PUT_FIELDS, [key], ["all" if anew else "some", *fields]))

    def now(self) -> int:
        """Return the time by the clock of Redis, in seconds since the epoch."""
        return int(self.client.time()[0])

    # The record

    def record(self) -> JobRecord:
        """Return what the commands did with the job last."""
        fields = self.client.hgetall(self.keys.record)
        names = ("state", "error", "log", "host", "layout")
        since, error_time = (float(fields.get(name, 0)) for name in ("since", "error_time"))
        return JobRecord(since=since, error_time=error_time, **{name: fields.get(name, "") for name in names})

    def is_known(self) -> bool:
        """Return True if Redis keeps anything of the job."""
        if self.client.exists(self.keys.record, self.keys.slots(), self.keys.generations, *self.keys.streams):
            return True
        # In a Redis Cluster this key may be on another node, and an operator may have no right for it.
        with suppress(RedisError):
            return bool(self.client.sismember(JOBS_KEY, self.job))
        return False

    def note(self, state: str, error: str | None = None, log: Path | None = None, layout: str | None = None) -> None:
        """Record a change of the job's state. Without `error`, `log` or `layout`, those of before stay."""
        fields = {"state": state, "since": str(time.time())}
        if error is not None:
            fields |= {"error": error, "error_time": fields["since"]}
        if log is not None:
            fields |= {"log": str(log), "host": socket.gethostname()}
        if layout is not None:
            fields["layout"] = layout
        self.write(self.keys.record, flat(fields))
        self.tell(": ".join(filter(None, [state, error, layout])))

    def note_error(self, error: str) -> None:
        """Record an error that leaves the job as it is; an empty text removes the last one."""
        self.write(self.keys.record, ["error", error, "error_time", str(time.time())])
        if error:
            self.tell(error)

    def tell(self, what: str) -> None:
        """Record an event that this command has caused."""
        record_event(self.client, self.job, what, this_command())

    # Generations

    def generations(self) -> Generations:
        """Return the generations of the job."""
        return Generations.read(cast("dict[str, str]", self.client.hgetall(self.keys.generations)))

    def begin(self, generation: Generation) -> None:
        """Write the record of a generation that starts alone; all earlier ones have ended."""
        earlier = self.generations().all
        # First: a slot that still runs would find no generation that reads, and refuse requests that name a version.
        self.put(generation)
        for number in earlier:
            self.end(number)
        # One whose process was killed while its read waited in Redis may have got requests after its end.
        for number in {*filter(None, map(self.keys.generation_of, self._pending()))} - {generation.number}:
            self._release(number)

    def next_number(self) -> int:
        """Return a number that no generation of the job has had."""
        known = self.generations()
        last = max(known.last, *known.all, 0)
        self.write(self.keys.generations, [LAST, last + 1, *(() if last else (VERSION, 0))])
        return last + 1

    def next_version(self, number: int) -> int:
        """Return the version that a new generation has if its model has no numbered folders.

        Starts that failed leave no gap. If no start has counted versions yet, the version is the number.
        """
        last = self.generations().version
        return number if last is None else last + 1

    def count_version(self, options: JobOptions) -> None:
        """Count the version of a start that succeeded."""
        if not options.redis.numbered:
            last = self.generations().version or 0
            self.write(self.keys.generations, [VERSION, max(last, int(options.redis.version))])

    def put(self, generation: Generation) -> None:
        """Write the record of a generation."""
        self.write(self.keys.generations, [str(generation.number), generation.to_json()])
        share = f" with {generation.share:g} %" if generation.share else ""
        self.tell(f"generation {generation.number}, version {generation.version}: {generation.role}{share}")

    def switch(self, generation: Generation, before: Generation | None) -> None:
        """Let a generation serve in place of the one before; both records have their new roles already."""
        records: list[Argument] = []
        for each in filter(None, (generation, before)):
            records += [str(each.number), each.to_json()]
        numbers = (None, generation.number, before.number if before else 0)
        call(self.client, Call(SWITCH, [self.keys.generations, *map(self.keys.slots, numbers)], records))
        earlier = f" in place of {before.number}, version {before.version}" if before else ""
        self.tell(f"generation {generation.number}, version {generation.version}: serving{earlier}")

    def end(self, number: int) -> None:
        """Remove a generation that has ended; the slots of the others take over what it left unanswered, at once."""
        self._release(number)
        self.client.hdel(self.keys.generations, str(number))
        of_models = [key for name in self.models() for key in JobKeys(name).of_generation(number)]
        self.client.delete(*self.keys.of_generation(number), *of_models)
        self.tell(f"generation {number}: ended")

    def hand_over(self, number: int, to: int) -> None:
        """Give the requests that were handed over to a generation to another generation."""
        self._hand_over_all([self.keys.handed_to(number)], self.keys.handed_to(to))

    def unanswered(self, number: int) -> int:
        """Return the number of requests that the slots of a generation have read and not answered."""
        return sum(count for name, count in self._pending().items() if self.keys.generation_of(name) == number)

    def _release(self, number: int) -> None:
        """Let the slots of other generations take what a generation has read."""
        consumers = [name for name in self._pending() if self.keys.generation_of(name) == number]
        self._hand_over_all([*consumers, self.keys.handed_to(number)], self.keys.orphans)

    def _hand_over_all(self, consumers: list[str], to: str) -> None:
        # A stream or a group is missing if the job has never run, or if Redis has lost it, and the requests with it.
        present = [each for each in self.keys.streams if self.client.exists(each) and self.client.xinfo_groups(each)]
        call(self.client, Call(HAND_OVER_ALL, [self.keys.generations, *present], [GROUP, to, *consumers]))

    def _pending(self) -> dict[str, int]:
        """Return the consumers of the job, each with the number of its pending entries in all streams."""
        found: dict[str, int] = {}
        for stream in self.keys.streams:
            try:
                consumers = self.client.xinfo_consumers(stream, GROUP)
            except ResponseError:
                # There is no such stream, or no group.
                continue
            for consumer in consumers:
                found[consumer["name"]] = found.get(consumer["name"], 0) + consumer["pending"]
        return found

    def stats(self, generation: int | None = None) -> JobStats:
        """Return the totals of the job, or of one generation."""
        return JobStats.read(cast("dict[str, str]", self.client.hgetall(self.keys.stats(generation))))

    def reading(self) -> Reading:
        """Return the figures of the job as they are now."""
        beside = [each.number for each in self.generations().all.values() if each.role == CANARY]
        replies = [self.client.execute_command(*command) for command in questions(self.job, beside)]
        return Reading.of(self.job, replies)

    def events(self, most: int) -> list[Event]:
        """Return the latest events, the oldest first."""
        return [Event.of(*entry) for entry in reversed(self.client.xrevrange(self.keys.events, count=most))]

    def comparison(self, shadow: int) -> Comparison:
        """Return what was compared so far of a shadow, by the number of its generation."""
        given_up = self.client.xlen(self.keys.shadow(shadow).dead_letters)
        return Comparison.read(self.client.hgetall(self.keys.compared(shadow)), given_up)

    def payload_folder(self) -> str:
        """Return the folder for large inputs that the job has, or has had when it ran; empty for none."""
        return os.fsdecode(self.client.hget(self.keys.limits, PAYLOAD_FOLDER) or b"")

    def secret(self, config: Config) -> tuple[str, str] | None:
        """Return secret and salt of an encrypted model, or empty texts; None if they are not stored."""
        if not config.model_encrypted:
            return "", ""
        secret, salt = config.model_secret or self.client.hmget(self.keys.secret, SECRET_FIELDS)
        return (secret, salt) if secret and salt else None

    def put_secret(self, config: Config) -> bool:
        """Store secret and salt of an encrypted model, if they are known; return False if the slots have to wait."""
        if config.model_encrypted and config.model_secret:
            self.client.hset(self.keys.secret, mapping=dict(zip(SECRET_FIELDS, config.model_secret, strict=True)))
        return not config.model_encrypted or bool(self.client.exists(self.keys.secret))

    # Slots

    def slots(self, generation: int | None = None, silent_after: float = SILENT_AFTER_S) -> list[SlotReport]:
        """Return the reports of the slots, by index: those of the generation that serves, or of another one."""
        now = self.now()
        return read_reports(cast("dict[str, str]", self.client.hgetall(self.keys.slots(generation))), now, silent_after)

    def models(self) -> dict[str, SlotReport]:
        """Return the models of a job that serves several, by name; none if it serves one."""
        return read_models(cast("dict[str, str]", self.client.hgetall(self.keys.models)))

    def announce(self, submission: str, parallelism: int, generation: int | None = None) -> None:
        """Report all slots of a job that is about to be submitted as loading, in place of all earlier reports.

        The reports describe the model that the job had before, so that front ends can queue requests for it meanwhile.
        With `generation`, they are those of a generation beside the one that serves.
        """
        before = next((report for report in self.slots() if report.engine), SlotReport("", ""))
        report = replace(
            before,
            submission=submission,
            state="loading",
            time=time.time(),
            attempt="",
            restarts=0,
            code=None,
            error=None,
        )
        fields: list[str] = []
        for index in range(parallelism):
            fields += [str(index), replace(report, index=index).to_json()]
        self.write(self.keys.slots(generation), fields, anew=True)
        self.tell(f"{parallelism} slot{'s' * (parallelism != 1)} starting")

    def note_stopped(self, submission: str | None, keep_failures: bool = False) -> None:
        """Change the reports of a stopped job's slots to stopped, in one transaction.

        Reports of other submissions stay as they are; None means all. With `keep_failures`, slots that could not load
        the model go on to say why.
        """
        key = self.keys.slots()

        def change(pipeline: Any) -> None:
            reports = read_reports(pipeline.hgetall(key))
            pipeline.multi()
            for report in reports:
                if submission in (None, report.submission) and not (keep_failures and report.state == "failed"):
                    stopped = replace(report, state="stopped", code=None, error=None)
                    pipeline.hset(key, str(report.index), stopped.to_json())

        self.client.transaction(change, key)


@contextmanager
def opened(config: Config, job: str | None = None) -> Iterator[JobStore]:
    """Connect to the Redis of a job, by default the job of the configuration.

    Raises:
        ServingError: If the block meets a key of another program; see `foreign_keys`.
    """
    name = job or config.job_name
    with redis_server.connect(config, job=job) as client:
        try:
            yield JobStore(client, name)
        except ResponseError as error:
            foreign_keys.explain(client, name, error)
            raise


def generation_of(options: JobOptions, role: str, flink: str = "") -> Generation:
    """Return the record of the generation that the options start, with the place of its Flink if that is known."""
    redis, now = options.redis, time.time()
    return Generation(redis.generation, role, options.submission, redis.version, redis.numbered, since=now, flink=flink)
