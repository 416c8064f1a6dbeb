"""Dead letters, the requests and callbacks that were given up: listed, queued again, and removed."""

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import redis

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.asynchronous.callbacks import SERDE
from cluster_serving.protocol.asynchronous.requeue import queued, requeue_call
from cluster_serving.protocol.dead_letters import MAX_PAYLOAD_BYTES, DeadLetter
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.inputs import Image, Images, Input, SparseTensor
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.scripts import call


class DeadLetters:
    """The dead letters of one job, by the id of their entry in `<jobName>:dead`; its client has replies as bytes."""

    def __init__(self, client: redis.Redis, job: str) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self.job = job
        self._key = JobKeys(job).dead_letters

    def all(self) -> dict[str, DeadLetter]:
        """Return all dead letters by their ids, the oldest first."""
        return {entry_id.decode(): DeadLetter.parse(fields) for entry_id, fields in self._client.xrange(self._key)}

    def is_of_known_job(self) -> bool:
        """Return True if Redis keeps anything of the job."""
        return JobStore(self._client, self.job).is_known()

    def of_models(self) -> dict[str, int]:
        """Return the numbers of the dead letters of the models of a job that serves several, by name."""
        names = [name.decode() for name in self._client.hgetall(JobKeys(self.job).models)]
        return {name: count for name in sorted(names) if (count := self._client.xlen(JobKeys(name).dead_letters))}

    def get(self, letter_id: str) -> DeadLetter:
        """Return one dead letter.

        Raises:
            LaunchError: If the job has no letter of that id.
        """
        try:
            entries = self._client.xrange(self._key, letter_id, letter_id)
        except redis.ResponseError:
            # The id is not of the form that Redis gives.
            entries = []
        if not entries:
            raise LaunchError(f"job {self.job} has no dead letter {letter_id}; cluster-serving-cli dead list shows all")
        return DeadLetter.parse(entries[0][1])

    def requeue(self, letter_id: str) -> str:
        """Put a request back on its stream and remove the letter and the error that answered it, in one step.

        Return the new entry id of the request in the stream; of a callback, which front ends then post, its id.

        Raises:
            LaunchError: If the job has no letter of that id, the payload was not kept, or the model was removed.
        """
        letter = self.get(letter_id)
        try:
            entry_id = queued(letter_id, call(self._client, requeue_call(self.job, letter_id, letter)))
        except InvalidInput as error:
            raise LaunchError(str(error)) from None
        if entry_id is None:
            raise LaunchError(f"dead letter {letter_id} was removed in the meantime")
        if isinstance(entry_id, int):
            self.purge([letter_id])
            return letter.request.uri
        return entry_id.decode()

    def purge(self, letter_ids: Sequence[str]) -> int:
        """Remove letters for good, and return the number of those that existed."""
        return int(self._client.xdel(self._key, *letter_ids)) if letter_ids else 0


def summary(letter_id: str, letter: DeadLetter) -> dict[str, Any]:
    """Return the columns of `dead list` for a letter, ready for JSON."""
    return {
        "id": letter_id,
        "time": datetime.fromtimestamp(letter.time, timezone.utc).isoformat(timespec="seconds"),
        "uri": letter.request.uri,
        "code": letter.code,
        "bytes": letter.size,
        "error": letter.error.partition("\n")[0],
    }


def details(letter_id: str, letter: DeadLetter) -> dict[str, Any]:
    """Return all about a letter, ready for JSON; of the payload the names, dtypes and shapes of the inputs."""
    request = letter.request
    return summary(letter_id, letter) | {
        "error": letter.error,
        "traceback": letter.traceback,
        "entry": request.id.decode("utf8", "replace"),
        "serde": request.serde.decode("utf8", "replace"),
        "reply_to": request.reply_to,
        "payload": "kept" if letter.kept else f"not kept: more than {MAX_PAYLOAD_BYTES} bytes",
        "inputs": _inputs(letter) if letter.kept and request.serde != SERDE else None,
    }


def _inputs(letter: DeadLetter) -> list[dict[str, Any]] | str:
    try:
        _, inputs = letter.request.decode()
    except ServingError as error:
        return f"cannot be read: {error}"
    return [{"name": name} | _described(value) for name, value in inputs.items()]


def _described(value: Input) -> dict[str, Any]:
    if isinstance(value, Image):
        return {"kind": "image", "bytes": len(value.data)}
    if isinstance(value, Images):
        return {"kind": "image", "bytes": value.nbytes, "shape": [len(value)]}
    if isinstance(value, SparseTensor):
        return {"kind": "sparse", "dtype": str(value.values.dtype), "shape": list(value.shape)}
    return {"kind": "tensor", "dtype": "str" if value.dtype == object else str(value.dtype), "shape": list(value.shape)}
