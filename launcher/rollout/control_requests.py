"""Requests of front ends to load or unload the model of a job, as the controller of the job gets them."""

from dataclasses import replace

from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.hosting.control import OUTCOME_TTL_S, UNLOADED, ControlRequest, encode_outcome
from cluster_serving.protocol.scripts import flat


def take(store: JobStore) -> ControlRequest | None:
    """Return the next request, which is not in the list any more; None if there is none. Expired ones are dropped."""
    while text := store.client.lpop(store.keys.control):
        request = ControlRequest.from_json(text)
        if store.now() < request.expires:
            return request
    return None


def finish(store: JobStore, request: ControlRequest, error: ServingError | None) -> None:
    """Tell the front end what has come of its request; `error` is None if it was carried out."""
    key = store.keys.control_outcome(request.id)
    store.write(key, flat(encode_outcome(error)), anew=True)
    store.client.expire(key, OUTCOME_TTL_S)


def note_unloaded(store: JobStore) -> None:
    """Change the reports of the slots of a stopped job: requests for it are refused until it is started again."""
    fields: list[str] = []
    for report in store.slots():
        if report.state == "stopped":
            fields += [str(report.index), replace(report, state=UNLOADED).to_json()]
    if fields:
        store.write(store.keys.slots(), fields)
