"""The search for the culprits of failed batches, behind new ones; clients that send culprits are set apart."""

from collections.abc import Iterator, Sequence

from cluster_serving.connectors.slot.answer import Answer, AnsweredBatch
from cluster_serving.connectors.slot.failing_clients import FailingClients
from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.job.computation import Computation, Steps
from cluster_serving.job.computing import Batches
from cluster_serving.job.culprits.suspects import Suspects
from cluster_serving.job.request import Request
from cluster_serving.protocol.errors import InferenceFailed, InferenceTimeout, InvalidInput, QueueFull

# An `InvalidInput` with a search is that of a handler that names the record.
_CULPRITS = {error.code for error in (InferenceFailed, InferenceTimeout, InvalidInput)}


class CulpritSearch:
    """The search of one slot (`computing.Search`).

    Args:
        batches: Processing of the batches of the slot.
    """

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._suspects = Suspects()

    def puts_off(self, requests: Sequence[Request], flow: SlotFlowControl | None) -> bool:
        """See `Search.puts_off`: True for a batch of a client whose requests make batches fail."""
        failing, first = _failing(flow), requests[0].entry
        return failing is not None and not first.one_by_one and failing.is_apart(first.client)

    def put_off(self, requests: Sequence[Request], flow: SlotFlowControl | None) -> Iterator[AnsweredBatch]:
        """See `Search.put_off`; if other clients would wait for so many requests, the rest is refused."""
        failing = _failing(flow)
        if flow is None or failing is None:
            return
        requests = [single for request in requests for single in request.each()]
        client = requests[0].entry.client
        room = self._suspects.room(flow) if failing.beside_others(client) else len(requests)
        kept, refused = requests[:room], requests[room:]
        alone = failing.mostly_fails(client)
        for part in [[request] for request in kept] if alone else [kept]:
            if part:
                self._suspects.put_off(part, self._steps(part))
        error = QueueFull(
            "many requests of this client make the model fail, so they are computed slowly, and as many are waiting as "
            "the job takes; send fewer, or mend those that fail"
        )
        yield from self._batches.answered([request.fail(error) for request in refused], 0, 0.0)

    def note(
        self, computation: Computation[Answer], answers: Sequence[Answer], seconds: float, flow: SlotFlowControl | None
    ) -> None:
        """See `Search.note`."""
        self._suspects.add(computation, len(computation.requests) - len(answers), seconds)
        if computation.search is not None:
            self._blame(answers, flow)

    def go_on(self, flow: SlotFlowControl | None) -> Iterator[AnsweredBatch]:
        """See `Search.go_on`; the rest is left to the next call if new requests wait."""
        while self._suspects and (suspect := self._suspects.next(flow)) is not None:
            with self._batches.noted(suspect.requests):
                answers, seconds = suspect.step()
            self._suspects.took(suspect, len(answers), seconds)
            self._blame(answers, flow)
            yield from self._batches.answered(answers, 0, seconds)

    def _steps(self, requests: Sequence[Request]) -> Steps[Answer]:
        computation = self._batches.predictor.start(self._batches.checked(requests), False)
        computation.ready()
        yield computation.known
        if computation.search is not None:
            yield None
            yield from computation.search

    def _blame(self, answers: Sequence[Answer], flow: SlotFlowControl | None) -> None:
        """Take note of the clients whose requests have made a batch fail."""
        culprits = [answer.entry.client for answer in answers if answer.fields.get("code") in _CULPRITS]
        if flow is None or not culprits:
            return
        failing = _failing(flow) or FailingClients()
        flow.apart = failing
        # Each of them counts.
        if any([failing.blame(client) for client in culprits]):
            # Requests of others, which share failed batches with these, need not wait for the search.
            self._suspects.regroup(
                lambda request: request.entry.client if failing.is_apart(request.entry.client) else "", self._steps
            )


def _failing(flow: SlotFlowControl | None) -> FailingClients | None:
    return flow.apart if flow is not None and isinstance(flow.apart, FailingClients) else None
