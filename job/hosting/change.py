"""A change of one model of a slot, made between two batches."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from cluster_serving.job.hosting.model import AbsentModel, HostedModel
from cluster_serving.job.options import HostedOptions
from cluster_serving.protocol.slots import SlotReport


@dataclass
class Change:
    """A change of one model.

    Attributes:
        name: Name of the model.
        model: What answers its requests from now on; None if nothing does.
        report: Description of the model from now on; None if it has gone.
        earlier: The model that was served before; None before the change, or if none was.
        leaves: The slot leaves the requests of the model to other slots.
        is_planned: The thread that serves knows of the change.
        one: Options of the model from now on; None if it has gone.
        kept: Fields of its record from now on, which a slot that starts again needs.
        made: Set when the change is made.
    """

    name: str
    model: HostedModel | AbsentModel | None
    report: SlotReport | None
    earlier: HostedModel | None = None
    leaves: bool = False
    is_planned: bool = False
    one: HostedOptions | None = None
    kept: dict[str, str] = field(default_factory=dict)
    made: threading.Event = field(default_factory=threading.Event)
