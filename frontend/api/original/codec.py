"""The original's requests and answers: in bodies over HTTP, and the same JSON in messages of gRPC."""

from dataclasses import dataclass
from typing import NamedTuple

from cluster_serving.frontend.api.json_codec import JsonCodec
from cluster_serving.frontend.api.json_text import writing_cost
from cluster_serving.frontend.api.original import instances, predictions
from cluster_serving.frontend.dataplane import Asked, Call, Outcomes
from cluster_serving.frontend.errors import without_errors
from cluster_serving.frontend.models.registry import ServedModel
from cluster_serving.frontend.options import ResponseFormat
from cluster_serving.frontend.server.responses import worst_error
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.results import Outputs
from cluster_serving.protocol.slots import SlotReport


class Answer(NamedTuple):
    """Outcomes of all records, the worst error among them if it gives the status, and the job's `postProcessing`."""

    outcomes: Outcomes
    error: ServingError | None
    filter_text: str


@dataclass(frozen=True, slots=True)
class HttpCodec(JsonCodec[Asked, Answer]):
    """Bodies: each record has its prediction or its error.

    Attributes:
        form: Form of the predictions.
    """

    form: ResponseFormat
    protocol = "original"
    needs_signature = False

    def decode(self, body: bytes, most: int, described: SlotReport | None) -> Asked:
        """Read instances; invalid ones are refused by themselves."""
        records = instances.read(body, most, described)
        good = [record for record in records if not isinstance(record, InvalidInput)]
        if len(good) == len(records):
            return Asked(good)
        refused = [(index, record) for index, record in enumerate(records) if isinstance(record, InvalidInput)]
        return Asked(good, refused=refused)

    def merge(self, call: Call, model: ServedModel, asked: Asked, outcomes: Outcomes) -> Answer:
        """Return the outcomes of all instances; an error of the input names its instance."""
        answers, refused = iter(outcomes), dict(asked.refused)
        merged: list[Outputs | ServingError] = [
            refused[index] if index in refused else _located(next(answers), index)
            for index in range(len(outcomes) + len(refused))
        ]
        return Answer(merged, worst_error(merged), model.post_processing)

    def encoding_cost(self, answer: Answer) -> int:
        """Return the cost of writing predictions in the form of the request."""
        return writing_cost(answer.outcomes, as_texts=self.form != "json")

    def encode(self, answer: Answer) -> tuple[bytes, ServingError | None]:
        """Return the body, which has all predictions even if some have failed, and the error that gives the status."""
        error = answer.error
        fields = {"error": error.message, "code": error.code} if error else None
        return predictions.body(answer.outcomes, self.form, answer.filter_text, fields), error


class GrpcCodec(JsonCodec[Asked, Answer]):
    """Messages: a request with an invalid or failed record has its error alone."""

    protocol = "grpc"
    needs_signature = False

    def decode(self, body: bytes, most: int, described: SlotReport | None) -> Asked:
        """Read instances."""
        return Asked(without_errors(instances.read(body, most, described)))

    def merge(self, call: Call, model: ServedModel, asked: Asked, outcomes: Outcomes) -> Answer:
        """Return the outputs of all instances, or raise the first error."""
        return Answer(without_errors(outcomes), None, model.post_processing)

    def encoding_cost(self, answer: Answer) -> int:
        """Return the cost of writing predictions as texts."""
        return writing_cost(answer.outcomes, as_texts=True)

    def encode(self, answer: Answer) -> str:
        """Write the JSON list of predictions."""
        return predictions.texts(answer.outcomes, answer.filter_text)


def _located(outcome: Outputs | ServingError, index: int) -> Outputs | ServingError:
    return type(outcome)(f"instances[{index}]: {outcome}") if isinstance(outcome, InvalidInput) else outcome
