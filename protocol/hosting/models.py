"""Models of a job that serves several: the Redis hash `<jobName>:models`, and what it says with the reports of slots.

The name of each model → a `SlotReport` in JSON, whose state is `ready` or `failed`. Such a model has streams, results,
limits, totals and dead letters under its own name (`JobKeys(name)`); slots and generations are those of the job.
`HOST` in `<name>:record` names the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster_serving.protocol.keys import as_text
from cluster_serving.protocol.slots import SlotReport

HOST = "served_by"
"""Field of `JobKeys.record`: the job that serves a model."""


def read_models(fields: Mapping[bytes, bytes] | Mapping[str, str]) -> dict[str, SlotReport]:
    """Return the description of each model in a hash `<jobName>:models`, by name."""
    found = {as_text(name): SlotReport.from_json(text) for name, text in fields.items()}
    return {name: found[name] for name in sorted(found)}


def reports_of(model: SlotReport, slots: Sequence[SlotReport]) -> list[SlotReport]:
    """Return the reports of a model, as if the slots of its job served it alone."""
    return [
        replace(
            model,
            submission=slot.submission,
            state=model.state if slot.state == "ready" else slot.state,
            index=slot.index,
            attempt=slot.attempt,
            time=slot.time,
            restarts=slot.restarts,
            code=model.code or slot.code,
            error=model.error or slot.error,
        )
        for slot in slots
    ]
