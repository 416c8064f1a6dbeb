"""Plain texts among inputs: texts for a model that takes texts, and else paths of images."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from redis.exceptions import RedisError, ResponseError

from cluster_serving.client.sending.convert import to_inputs
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.scripts import Procedure, fetch_call, fields_of
from cluster_serving.protocol.slots import TensorSpec, at_once, matched, read_reports

_KNOWN_S = 10.0
"""Seconds for which it is known what the inputs of a job are."""


class TextInputs:
    """Knowledge about the inputs of a job, which is needed only for values that are a plain `str`.

    The slots tell what the model takes. Read their reports if `needs` says so, and give them to `learn`.

    Attributes:
        together: Most records of a request, as far as the limit is known.
        at_once: Most records that may wait in the job at a time; 0 if the limit is not known.
    """

    def __init__(self) -> None:
        self._specs: Sequence[TensorSpec] = ()
        self.together = 1
        self.at_once = 0
        self._until = 0.0

    def needs(self, values: Mapping[str, object]) -> bool:
        """Return True if a value is a plain text, and too little is known about the inputs."""
        return any(isinstance(value, str) for value in values.values()) and time.monotonic() >= self._until

    def learn(self, reports: Mapping[Any, Any]) -> None:
        """Take note of the reports of the slots, the content of the hash `JobKeys.slots`."""
        slots = read_reports(reports)
        specs = next((slot.inputs for slot in slots if slot.inputs), ())
        self._specs = specs
        self.together = min([slot.together for slot in slots], default=1)
        # The first slots of a job do not know their batches before they have a model.
        self.at_once = at_once(slots) if any(slot.state == "ready" for slot in slots) else 0
        # A job that does not run yet may do so soon.
        self._until = time.monotonic() + _KNOWN_S if specs else 0.0

    def applied(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """Return the values of the inputs, with arrays in place of the texts that are for inputs of texts."""
        by_name = matched(values, self._specs)
        values = {name: values[name] for name in by_name} or values
        texts = {
            name: np.array(value, object)
            for name, value in values.items()
            if isinstance(value, str) and name in by_name and by_name[name].dtype == "str"
        }
        return {**values, **texts} if texts else values


def converted(job: str, texts: TextInputs, values: Mapping[str, object]) -> Procedure[dict[str, Input]]:
    """Convert inputs, and read the reports of the slots for that if it is necessary; see `InputQueue`."""
    if texts.needs(values):
        yield from learn(job, texts)
    return to_inputs(texts.applied(values))


def learn(job: str, texts: TextInputs) -> Procedure[None]:
    """Read the reports of the slots."""
    # A client may lack the right to read them.
    with suppress(ResponseError):
        (reply,) = yield fetch_call([JobKeys(job).slots()])
        if not isinstance(reply, RedisError):
            texts.learn(fields_of(reply))
