"""The way of an entry through a job, without Flink and Redis: parsed, decoded, batched, answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster_serving.connectors.answer import Answer
from cluster_serving.job.batcher import Batcher
from cluster_serving.job.predictor import Predictor
from cluster_serving.job.request import Request
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.original import image_stream


def answers(predictor: Predictor, entries: Sequence[Mapping[bytes, bytes]]) -> dict[str, Answer]:
    """uri → answer of each entry that can be answered; equal requests meet in a batch, as in a job."""
    batcher: Batcher[Request] = Batcher(32, 0)
    batches = []
    for number, fields in enumerate(entries):
        try:
            entry = image_stream.parse_entry(b"%d-0" % (number + 1), fields)
        except InvalidInput:
            continue  # without a uri there is nobody to answer
        try:
            signature, inputs = entry.decode()
        except ServingError as error:
            batches.append([Request(entry, "", {}, error)])
            continue
        full = batcher.add(signature, Request(entry, "", inputs), 0)
        if full:
            batches.append(full)
    batches += batcher.flush()
    return {answer.entry.uri: answer for batch in batches for answer in predictor.start(batch, alone=True).answers()}
