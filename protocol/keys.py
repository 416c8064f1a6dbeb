"""Names in Redis: the keys of a job (`JobKeys`), and the fields that several modules use.

All keys of a job begin with its `jobName`, except results in the original's encoding, which have the original's prefix.
Two keys are shared by all jobs of a Redis.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

DEFAULT_JOB = "serving_stream"
"""`jobName` of a job whose configuration has none, as in the original."""

GROUP = "serving"
"""Consumer group of every job, as the original names it."""

JOBS_KEY = "cluster-serving:jobs"
"""Set with the names of all jobs that were ever started on a Redis. Front ends read it to find jobs."""

SUBMITTED_CHANNEL = "cluster-serving_submitted"
"""Channel that announces results of asynchronous requests to front ends."""

PRIORITIES = ("high", "normal", "low")
"""Priorities of requests, highest first. Clients without priorities use `normal`."""

NORMAL = "normal"

RESULT_TTL = "resultTtl"
"""Field of the limits: seconds for which results are kept."""

MAX_QUEUE_LENGTH = "maxQueueLength"
"""Field of the limits: limit of the number of unanswered requests; missing if there is no limit."""

PAYLOAD_FOLDER = "payloadFolder"
"""Field of the limits: folder for large inputs of clients on the same machine; missing if there is none."""

REFUSED_MODEL = "refused"
"""Field of the controller: why it does not load the model whose files have changed; missing if there is none."""

MODEL_SECRET_KEY = "model_secured"  # noqa: S105 - the name of a key
"""Hash with the secret and the salt of encrypted models; all jobs of a Redis share it, as in the original."""

SECRET_FIELDS = ["secret", "salt"]
"""Fields of that hash."""


def to_bytes(text: str) -> bytes:
    """Return the bytes of a uri, key, channel or message, as `to_text` read them."""
    return text.encode("utf8", "surrogateescape")


def to_text(raw: bytes) -> str:
    """Read a uri, key, channel or message; bytes that are no UTF-8 become lone surrogates and so are kept."""
    return raw.decode("utf8", "surrogateescape")


def as_text(raw: bytes | str) -> str:
    """Return a reply of Redis as text, whether the client decodes replies or not."""
    return raw if isinstance(raw, str) else to_text(raw)


RESULT_PREFIX = "cluster-serving_"
"""Start of the original's result keys."""


class _Key:
    """A key of a job that needs nothing but the job's name."""

    def __init__(self, suffix: str) -> None:
        self._end = f":{suffix}"

    def __get__(self, keys: JobKeys, owner: type[JobKeys]) -> str:
        return keys.job + self._end


class JobKeys:
    """Names of a job in Redis: its keys, and the consumers of its group. An instance is cheap to make.

    Attributes:
        job: Name of the job.
    """

    __slots__ = ("job",)

    def __init__(self, job: str) -> None:
        self.job: Final = job

    generations = _Key("generations")
    """Hash of the generations of the job, and of their roles (`protocol.generations`)."""

    limits = _Key("limits")
    """Hash of the configuration that clients of the job need; the job writes it when it starts."""

    record = _Key("record")
    """Hash in which the commands record the state of the job, its last error, and where the log is."""

    command = _Key("command")
    """Hash of the command that is starting or stopping the job."""

    controller = _Key("controller")
    """Hash of the process that changes the job without a command (`launcher.rollout.controller`)."""

    control = _Key("control")
    """List of the requests that the controller of the job has not begun (`protocol.hosting.control`)."""

    answered = _Key("answered")
    """Counter of the requests that the job has answered since its start."""

    attempts = _Key("attempts")
    """Hash of notes about interrupted attempts at requests."""

    dead_letters = _Key("dead")
    """Stream of the requests that were given up."""

    callbacks = _Key("callbacks")
    """Hash of the callbacks that no receiver has accepted yet (`protocol.asynchronous.callbacks`)."""

    callback_times = _Key("callbacks:due")
    """Sorted set of the times at which front ends look at these callbacks next."""

    events = _Key("events")
    """Stream of what has happened to the job (`protocol.events`)."""

    one_by_one = _Key("one-by-one")
    """Hash of the models whose records share calls no more, since a watch has found a difference.

    The digest of a model, or the start of the job that serves it (`SlotReport.submission`) → the reason.
    """

    history = _Key("history")
    """Stream of the figures of the last hour, which front ends write (`frontend.models.history`)."""

    models = _Key("models")
    """Hash of the models of a job of several: the name of each, and its description (`protocol.hosting.models`)."""

    slot_stats = _Key("stats:slots")
    """Hash in which the job keeps the metrics of its versions and slots (`protocol.figures.metrics`)."""

    def stream(self, priority: str) -> str:
        """Return the stream of the requests of a priority; for `normal` it has the name of the job."""
        return self.job if priority == NORMAL else f"{self.job}:{priority}"

    @property
    def streams(self) -> list[str]:
        """All streams of the job, in the order of `PRIORITIES`."""
        return [self.stream(priority) for priority in PRIORITIES]

    def result(self, uri: str) -> str:
        """Return the hash for a result in the original's encoding; also the channel that announces any result."""
        return f"{RESULT_PREFIX}{self.job}:{uri}"

    def native_result(self, uri: str) -> str:
        """Return the hash for a result in our encoding.

        The original's `dequeue` takes every key that begins like `result`, and loses results if one is not its own.
        """
        return f"{self.job}:result:{uri}"

    def pieces(self, uri: str) -> str:
        """Return the stream of the pieces of an answer (`protocol.pieces`); also the channel that announces each."""
        return f"{self.job}:pieces:{uri}"

    def results(self, uri: str) -> list[bytes]:
        """Return the hashes that may hold the result of a request, in either encoding."""
        return [to_bytes(self.native_result(uri)), to_bytes(self.result(uri))]

    @property
    def result_pattern(self) -> str:
        """SCAN pattern for all results of the job; `uri_of` tells them from other keys that it matches."""
        escaped = "".join(f"\\{c}" if c in "*?[]\\" else c for c in self.job)
        return f"*{escaped}:*"

    def uri_of(self, key: bytes) -> str | None:
        """Return the request's uri in a result key, None for other keys. Unlike in the original, it may hold colons."""
        for prefix in self.results(""):
            if key.startswith(prefix):
                return to_text(key[len(prefix) :])
        return None

    def ticket(self, secret: str) -> str:
        """Return the hash of an asynchronous HTTP request: its priority, and the stream entry of each instance."""
        return f"{self.job}:http:{secret}"

    def control_outcome(self, request_id: str) -> str:
        """Return the hash of the outcome of a request to the controller."""
        return f"{self.control}:{request_id}"

    def slots(self, generation: int | None = None) -> str:
        """Return the hash in which task slots report: those of the generation that serves, or of another."""
        return f"{self.job}:slots" if generation is None else f"{self.job}:slots:{generation}"

    def stats(self, generation: int | None = None) -> str:
        """Return the hash in which the job keeps the totals of its work: all of it, or that of one generation."""
        return f"{self.job}:stats" if generation is None else f"{self.job}:stats:{generation}"

    def shadow(self, generation: int) -> JobKeys:
        """Return the names of a pretend job: its streams hold the copies of requests that a shadow computes."""
        return JobKeys(f"{self.job}:shadow:{generation}")

    def awaited(self, generation: int, request: str) -> str:
        """Return the hash with a request's answer, until the shadow's answer of its copy is compared with it."""
        return f"{self.shadow(generation).job}:awaited:{request}"

    def compared(self, generation: int) -> str:
        """Return the hash of the results of comparing the answers of a shadow (`protocol.figures.comparison`)."""
        return f"{self.shadow(generation).job}:compared"

    def of_generation(self, generation: int) -> list[str]:
        """Return all keys of a generation that do not expire; some of them only shadows have."""
        shadow = self.shadow(generation)
        copies = [*shadow.streams, self.compared(generation), shadow.answered, shadow.attempts, shadow.dead_letters]
        return [self.slots(generation), self.stats(generation), *copies]

    def lasting(self, generations: Iterable[int] = ()) -> list[str]:
        """Return all keys of the job that do not expire, and those of some of its generations."""
        keys = [*self.streams, self.generations, self.slots(), self.stats(), self.slot_stats, self.record, self.limits]
        keys += [self.dead_letters, self.callbacks, self.callback_times, self.events, self.history]
        keys += [self.attempts, self.answered, self.controller, self.control, self.one_by_one, self.models]
        for number in generations:
            keys += self.of_generation(number)
        return keys if self.secret == MODEL_SECRET_KEY else [*keys, self.secret]

    def consumer(self, generation: int, subtask: int) -> str:
        """Return the name of a slot in the consumer group."""
        return f"{self.job}-{generation}-{subtask}"

    def consumers(self, generation: int) -> str:
        """Return what the names of all slots of a generation in the consumer group begin with."""
        return f"{self.job}-{generation}-"

    def generation_of(self, consumer: str) -> int | None:
        """Return the generation of a slot's consumer; None for other consumers."""
        generation, _, subtask = consumer.removeprefix(f"{self.job}-").rpartition("-")
        return int(generation) if generation.isdigit() and subtask.isdigit() else None

    def handed_to(self, generation: int) -> str:
        """Return the consumer of requests that slots have handed over to a generation, before their computation."""
        return f"{self.job}-{generation}-left"

    @property
    def orphans(self) -> str:
        """Consumer of the requests of slots that have gone; their computation may have begun."""
        return f"{self.job}-left"

    @property
    def secret(self) -> str:
        """Hash of the model secret that the job reads.

        In a Redis Cluster the secret has to lie with the job's keys, so a job whose name has braces has its own secret.
        """
        return f"{self.job}:{MODEL_SECRET_KEY}" if self.job.startswith("{") else MODEL_SECRET_KEY


_ANY = JobKeys("")


def image_result_key(uri: str) -> str:
    """Return the hash in which the clients of 0.7 and 0.8 look for a result (`protocol.original.image_stream`)."""
    return f"result:{uri}"


def is_result(key: bytes) -> bool:
    """Return True for a key that the result of a request to any job may have, in any encoding."""
    starts = (RESULT_PREFIX.encode(), image_result_key("").encode())
    return key.startswith(starts) or _ANY.native_result("").encode() in key


def is_pieces(key: bytes) -> bool:
    """Return True for the key of the pieces of an answer of any job."""
    return _ANY.pieces("").encode() in key


def is_dead_letters(key: bytes) -> bool:
    """Return True for the key of the dead letters of any job."""
    return key.endswith(_ANY.dead_letters.encode())


def is_log(key: bytes) -> bool:
    """Return True for the key of the events, or of the history, of any job."""
    return key.endswith((_ANY.events.encode(), _ANY.history.encode()))


def missing_secret(job: str) -> str:
    """Return the message for a missing model secret, with the command that stores it."""
    secret = JobKeys(job).secret
    return f"the model is encrypted, and Redis has no secret for it: HSET {secret} secret <secret> salt <salt>"
