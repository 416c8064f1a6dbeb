"""Answers of requests, and the script that writes them to Redis."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.protocol import columns, encodings
from cluster_serving.protocol.columns import EACH
from cluster_serving.protocol.dead_letters import MAX_DEAD_LETTERS, DeadLetter
from cluster_serving.protocol.entry import RESULT, Entry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.keys import GROUP, JobKeys, to_bytes
from cluster_serving.protocol.payloads.base import remove
from cluster_serving.protocol.pieces import END
from cluster_serving.protocol.redis.dedicated import Commands
from cluster_serving.protocol.results import VERSION, encode_error, result_key_of, to_fields
from cluster_serving.protocol.scripts import ANSWER, HAS_ENTRY, Argument, Call, call, flat
from cluster_serving.protocol.token_counts import TokenCounts

MAX_PUBLISHED_BYTES = 8192
"""Longer results are not published: Redis would hold a copy for every slow subscriber."""


class Answer(NamedTuple):
    """Answer of a request.

    Attributes:
        entry: The request.
        fields: Fields of the result hash.
        letters: Dead letters of the request, or of those of its records that are given up.
        part: Index of the record, or of the first one, of an entry that has several; -1 for the whole entry.
        outputs: Names and values of the outputs of such records, if they take the place of `fields`.
        rows: Number of records that `outputs` have along a first dimension; 0 for a record without that dimension.
        tokens: Numbers of tokens of each record beside `outputs`, if a client wants them counted.
    """

    entry: Entry
    fields: Mapping[str, str | bytes]
    letters: Sequence[DeadLetter] = ()
    part: int = -1
    outputs: tuple[Sequence[str], Sequence[Array]] | None = None
    rows: int = 0
    tokens: Sequence[TokenCounts] = ()

    @property
    def codes(self) -> list[str]:
        """Codes of the errors of all records that have failed."""
        if "code" in self.fields:
            return [str(self.fields["code"])] * self.entry.record_count
        if EACH not in self.fields:
            return []
        outcomes = columns.outcomes(to_fields(self.fields), self.entry.record_count)
        return [outcome.code for outcome in outcomes if isinstance(outcome, ServingError)]


class AnsweredBatch(NamedTuple):
    """A batch on its way to the sink.

    Attributes:
        answers: At least one.
        wait_us: Microseconds that its oldest request had waited before it was computed.
        inference_us: Microseconds that the computation took.
        preprocess_us: Those of them for preparing the inputs.
        postprocess_us: Those of them for filters and for encoding the answers.
        flow: Flow control that its requests came through; None if their source runs in another process.
    """

    answers: Sequence[Answer]
    wait_us: int
    inference_us: int
    preprocess_us: int = 0
    postprocess_us: int = 0
    flow: SlotFlowControl | None = None

    @property
    def failing(self) -> list[Answer]:
        """The answers that are errors, or may have errors of records (`Answer.codes`)."""
        return [answer for answer in self.answers if "code" in answer.fields or EACH in answer.fields]


def write_answers(client: Commands, job: str, ttl_s: int, answers: Sequence[Answer], version: str = "") -> int:
    """Write answers, and everything that makes their requests answered, in one step.

    Result, expiry, acknowledgement, deletion from the stream, dead letter and the wake-up of the waiting client happen
    together. So after any crash, a request is either pending or answered. A request that is no longer pending is left
    alone: another slot has answered it, and its client may have deleted the result. Results are kept for `ttl_s`
    seconds, and name the `version` of the model, unless it is empty.

    Returns:
        Number of requests that were still pending.

    Raises:
        redis.RedisError: If not all answers were written; write them again.
    """
    # Once for all answers, which are many thousands per second.
    names = JobKeys(job)
    channels, natives = names.result("").encode(), names.native_result("").encode()
    keys: list[str | bytes] = [names.dead_letters, names.answered]
    arguments: list[Argument] = [GROUP, ttl_s, MAX_DEAD_LETTERS]
    versions: list[Argument] = [VERSION, version.encode()] if version else []
    end: list[Argument] = [END, ""]
    for entry, fields, letters, *_ in answers:
        if encodings.is_early(job, entry.serde):
            fields = encodings.early_result(fields)
        uri = to_bytes(entry.uri)
        key = natives + uri if entry.native else result_key_of(job, entry)
        channel = to_bytes(entry.reply_to) or channels + uri
        announcement = "line"
        parts, letter_parts = flat(fields) + versions, [flat(letter.fields()) for letter in letters]
        if entry.reply_with == RESULT:
            announcement = "result" if sum(map(len, fields.values())) <= MAX_PUBLISHED_BYTES else "uri"
        elif entry.in_pieces:
            key = channel = to_bytes(names.pieces(entry.uri))
            announcement, parts = "pieces", end + parts
        keys += [names.stream(entry.priority), key]
        sizes = len(parts), len(letter_parts), max(map(len, letter_parts), default=1), entry.record_count
        arguments += [entry.id, channel, uri, announcement, *sizes, *parts, *chain.from_iterable(letter_parts)]
    written = int(call(client, Call(ANSWER, keys, arguments)))
    for entry, *_ in answers:
        # A request that is not pending is computed later if its group was lost; then it is still in the stream.
        if entry.path and (written == len(answers) or not _is_queued(client, job, entry)):
            remove(entry.path)
    return written


def dead_letter(
    client: Commands, job: str, ttl_s: int, entry: Entry, error: ServingError, traceback: str = "", version: str = ""
) -> None:
    """Give a request up: keep it in the stream `<jobName>:dead` and answer it with the error, in one step.

    The answer expires after `ttl_s` seconds; the dead letter stays, with the traceback of the last attempt, if any.

    Raises:
        redis.RedisError: If Redis cannot be used; the request may then still be pending.
    """
    letter = DeadLetter.of(entry, error, traceback)
    write_answers(client, job, ttl_s, [Answer(entry, encode_error(error), [letter])], version)


def _is_queued(client: Commands, job: str, entry: Entry) -> bool:
    return bool(call(client, Call(HAS_ENTRY, [JobKeys(job).stream(entry.priority)], [entry.id])))
