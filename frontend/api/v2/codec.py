"""The Open Inference Protocol v2 for the data plane; HTTP and gRPC differ in the form of bodies and messages alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from cluster_serving.frontend.api.json_text import writing_cost
from cluster_serving.frontend.api.v2.batch import RecordsRequest, no_output, output_of, to_records
from cluster_serving.frontend.api.v2.request import InferRequest, InferResponse, RequestedOutput
from cluster_serving.frontend.dataplane import Call, Codec, succeeded
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.offload import LARGE
from cluster_serving.protocol.columns import Outcomes
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import PRIORITIES
from cluster_serving.protocol.slots import SlotReport
from cluster_serving.protocol.values.lists import shown


class V2Codec(Codec[RecordsRequest, InferResponse]):
    """Base of the codecs of v2: the records of a request are its batch, and their answers are merged into one."""

    def parse(self, body: Any) -> InferRequest:
        """Read a body or a message."""
        raise NotImplementedError

    def opened(self, body: Any) -> Any:
        """Read a body unless it is large: its own errors come before those of a model that is not ready."""
        holding, sharing = self.cost(body)
        return self.parse(body) if holding < LARGE > sharing else body

    def decode(self, body: Any, most: int, described: SlotReport) -> RecordsRequest:
        """Read a request, and split it into records; see `to_records`."""
        request = body if isinstance(body, InferRequest) else self.parse(body)
        batch = to_records(request.inputs, described, most)
        return RecordsRequest(batch.records, batch.keeps_batch, request)

    def options(self, call: Call, model: PublishedModel, asked: RecordsRequest) -> tuple[float | None, str]:
        """Check the outputs that a request wants; return the seconds for which its client waits, and its priority."""
        request = asked.request
        _check_outputs(request.outputs, model)
        return _seconds(request.parameters, call.timeout), _priority(request.parameters, call.priority)

    def merging_cost(self, outcomes: Outcomes) -> int:
        """Return the cost of merging: nearly that of writing JSON."""
        return writing_cost(outcomes)

    def merge(self, call: Call, model: PublishedModel, asked: RecordsRequest, outcomes: Outcomes) -> InferResponse:
        """Merge the answers to all records into one batch, or raise the first error; see `RecordsRequest.merge`."""
        # A failed request names the version of its error alone.
        version, call.version = call.version, ""
        request, described = asked.request, model.described
        assert described is not None  # noqa: S101 - for the type checker: this protocol needs the signature
        known = [spec.name for spec in described.outputs]
        named = {output_of(output.name, known): output for output in request.outputs}
        found = asked.merge(succeeded(outcomes), described, {name: output.classes for name, output in named.items()})
        outputs = {named[name].name if name in named else name: array for name, array in found.items()}
        call.version = version or model.version
        return InferResponse(model.name, call.version, request.id, outputs)


def _seconds(parameters: Mapping[str, Any], timeout: float | None) -> float | None:
    if parameters.get("sequence_id") not in (None, 0, ""):
        raise InvalidInput("the request has a sequence_id, but models keep no state between requests")
    asked = 0 if parameters.get("timeout") is None else parameters["timeout"]
    if type(asked) is not int or asked < 0:
        raise InvalidInput(f"the parameter timeout is {shown(asked)}; expected microseconds as an integer")
    if not asked:
        return timeout
    return asked / 1e6 if timeout is None else min(timeout, asked / 1e6)


def _priority(parameters: Mapping[str, Any], priority: str) -> str:
    """Return the priority in the queue of the job. As in Triton, 1 is the highest, and 0 the default: the call's."""
    asked = 0 if parameters.get("priority") is None else parameters["priority"]
    if type(asked) is not int or asked < 0:
        raise InvalidInput(f"the parameter priority is {shown(asked)}; expected an integer from 0 up")
    return PRIORITIES[min(asked, len(PRIORITIES)) - 1] if asked else priority


def _check_outputs(outputs: Sequence[RequestedOutput], model: PublishedModel) -> None:
    names = [output.name for output in outputs]
    if len(set(names)) < len(names):
        raise InvalidInput(f"the request asks for the outputs {names}; expected each name once")
    known = [spec.name for spec in model.described.outputs] if model.described else []
    for name in names:
        # Of some models, only the answer to the first request tells the outputs.
        if known and output_of(name, known) not in known:
            raise no_output(name, known)
