"""Names in Redis: all keys, and the fields that several modules use.

All keys of a job begin with its `jobName`, except results in the original's encoding, which have the original's prefix.
Two keys are shared by all jobs of a Redis.
"""

from __future__ import annotations

from collections.abc import Iterable

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


def stream_of(job: str, priority: str) -> str:
    """Return the stream of the requests of a priority; for `normal` it has the name of the job."""
    return job if priority == NORMAL else f"{job}:{priority}"


def streams_of(job: str) -> list[str]:
    """Return all streams of a job, in the order of `PRIORITIES`."""
    return [stream_of(job, priority) for priority in PRIORITIES]


RESULT_PREFIX = "cluster-serving_"
"""Start of the original's result keys."""


def result_key(job: str, uri: str) -> str:
    """Return the hash for a result in the original's encoding; also the channel that announces any result."""
    return f"{RESULT_PREFIX}{job}:{uri}"


def native_result_key(job: str, uri: str) -> str:
    """Return the hash for a result in our encoding.

    The original's `dequeue` takes every key that begins like `result_key`, and loses results if one is not its own.
    """
    return f"{job}:result:{uri}"


def pieces_key(job: str, uri: str) -> str:
    """Return the stream of the pieces of an answer (`protocol.pieces`); also the channel that announces each."""
    return f"{job}:pieces:{uri}"


def image_result_key(uri: str) -> str:
    """Return the hash in which the clients of 0.7 and 0.8 look for a result (`protocol.original.image_stream`)."""
    return f"result:{uri}"


def result_keys(job: str, uri: str) -> list[bytes]:
    """Return the hashes that may hold the result of a request, in either encoding."""
    return [to_bytes(native_result_key(job, uri)), to_bytes(result_key(job, uri))]


def result_pattern(job: str) -> str:
    """Return a SCAN pattern for all results of a job; `uri_of` tells them from other keys that it matches."""
    escaped = "".join(f"\\{c}" if c in "*?[]\\" else c for c in job)
    return f"*{escaped}:*"


def uri_of(job: str, key: bytes) -> str | None:
    """Return the request's uri in a result key, None for other keys. Unlike in the original, it may hold colons."""
    for prefix in result_keys(job, ""):
        if key.startswith(prefix):
            return to_text(key[len(prefix) :])
    return None


def is_result(key: bytes) -> bool:
    """Return True for a key that the result of a request to any job may have, in any encoding."""
    starts = (RESULT_PREFIX.encode(), image_result_key("").encode())
    return key.startswith(starts) or native_result_key("", "").encode() in key


def generations_key(job: str) -> str:
    """Return the hash of the generations of a job, and of their roles (`protocol.generations`)."""
    return f"{job}:generations"


def slots_key(job: str, generation: int | None = None) -> str:
    """Return the hash in which task slots report their state: those of the generation that serves, or of another."""
    return f"{job}:slots" if generation is None else f"{job}:slots:{generation}"


def stats_key(job: str, generation: int | None = None) -> str:
    """Return the hash in which a job keeps the totals of its work: all of it, or that of one generation."""
    return f"{job}:stats" if generation is None else f"{job}:stats:{generation}"


def shadow_queue(job: str, generation: int) -> str:
    """Return the name of a pretend job: its streams hold the copies of requests that a shadow computes."""
    return f"{job}:shadow:{generation}"


def awaited_key(job: str, generation: int, request: str) -> str:
    """Return the hash with the answer of a request, until the shadow's answer of its copy is compared with it."""
    return f"{shadow_queue(job, generation)}:awaited:{request}"


def compared_key(job: str, generation: int) -> str:
    """Return the hash of the results of comparing the answers of a shadow (`protocol.comparison`)."""
    return f"{shadow_queue(job, generation)}:compared"


def shadow_keys(job: str, generation: int) -> list[str]:
    """Return all keys of a shadow that do not expire, but those that any generation has."""
    queue = shadow_queue(job, generation)
    return [
        *streams_of(queue),
        compared_key(job, generation),
        *(key(queue) for key in (answered_key, attempts_key, dead_letters_key)),
    ]


def job_keys(job: str, generations: Iterable[int] = ()) -> list[str]:
    """Return all keys of a job that do not expire, and those of some of its generations."""
    own = (generations_key, slots_key, stats_key, record_key, limits_key, dead_letters_key, attempts_key, answered_key)
    keys = [*streams_of(job), *(key(job) for key in (*own, controller_key, control_key))]
    for number in generations:
        keys += [slots_key(job, number), stats_key(job, number), *shadow_keys(job, number)]
    return keys if secret_key(job) == MODEL_SECRET_KEY else [*keys, secret_key(job)]


def consumer(job: str, generation: int, subtask: int) -> str:
    """Return the name of a slot in the consumer group."""
    return f"{job}-{generation}-{subtask}"


def consumers_of(job: str, generation: int) -> str:
    """Return what the names of all slots of a generation in the consumer group begin with."""
    return consumer(job, generation, 0).removesuffix("0")


def generation_of(job: str, consumer: str) -> int | None:
    """Return the generation of a slot's consumer; None for other consumers."""
    generation, _, subtask = consumer.removeprefix(f"{job}-").rpartition("-")
    return int(generation) if generation.isdigit() and subtask.isdigit() else None


def left_for(job: str, generation: int) -> str:
    """Return the consumer that holds requests which slots have left for a generation, and which nobody computes."""
    return f"{job}-{generation}-left"


def left_behind(job: str) -> str:
    """Return the consumer that holds requests of slots that are gone; their computation may have begun."""
    return f"{job}-left"


def record_key(job: str) -> str:
    """Return the hash in which the commands record the state of a job, its last error, and where the log is."""
    return f"{job}:record"


def limits_key(job: str) -> str:
    """Return the hash of the configuration that clients of a job need; the job writes it when it starts."""
    return f"{job}:limits"


def dead_letters_key(job: str) -> str:
    """Return the stream of the requests that were given up."""
    return f"{job}:dead"


def is_pieces(key: bytes) -> bool:
    """Return True for the key of the pieces of an answer of any job."""
    return pieces_key("", "").encode() in key


def is_dead_letters(key: bytes) -> bool:
    """Return True for the key of the dead letters of any job."""
    return key.endswith(dead_letters_key("").encode())


def attempts_key(job: str) -> str:
    """Return the hash of notes about interrupted attempts at requests."""
    return f"{job}:attempts"


def ticket_key(job: str, secret: str) -> str:
    """Return the hash of an asynchronous HTTP request: its priority, and the stream entry of each instance."""
    return f"{job}:http:{secret}"


def command_key(job: str) -> str:
    """Return the hash of the command that is starting or stopping a job."""
    return f"{job}:command"


def controller_key(job: str) -> str:
    """Return the hash of the process that changes a job without a command (`launcher.jobs.controller`)."""
    return f"{job}:controller"


def control_key(job: str) -> str:
    """Return the list of the requests that the controller of a job has not begun (`protocol.model_control`)."""
    return f"{job}:control"


def control_outcome_key(job: str, request_id: str) -> str:
    """Return the hash of the outcome of such a request."""
    return f"{control_key(job)}:{request_id}"


def answered_key(job: str) -> str:
    """Return the counter of the requests that a job has answered since its start."""
    return f"{job}:answered"


def secret_key(job: str) -> str:
    """Return the hash of the model secret that a job reads.

    In a Redis Cluster the secret has to lie with the job's keys, so a job whose name has braces has its own secret.
    """
    return f"{job}:{MODEL_SECRET_KEY}" if job.startswith("{") else MODEL_SECRET_KEY


def missing_secret(job: str) -> str:
    """Return the message for a missing model secret, with the command that stores it."""
    return f"the model is encrypted, and Redis has no secret for it: HSET {secret_key(job)} secret <secret> salt <salt>"
