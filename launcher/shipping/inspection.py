"""Inspection of a model that the TaskManagers fetch from a store: what this machine can tell of it beforehand."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_serving.job.options import ModelOptions
from cluster_serving.job.remote.url import ModelUrl, is_url
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import memory
from cluster_serving.launcher.services.supervisor import python_command

_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is known of a model: its engine, the requirement that installs it, and its bytes; empty, or None.

    `text` is True if it has a tokenizer, or may have one.
    """

    engine: str = ""
    requirement: str = ""
    size: int | None = None
    text: bool = True


def inspect(address: str, warn: Callable[[str], None], handler: str = "") -> Inspection:
    """Ask the store for the names of the model's files; `warn` receives why nothing is known.

    `handler` is the key of the configuration.

    The libraries of the store run in a process of their own, which can be ended if the store does not answer.

    Raises:
        LaunchError: If the TaskManagers could not serve the model, either.
    """
    shown = ModelUrl.parse(address)
    try:
        ran = subprocess.run(  # noqa: S603 - our own module, no shell
            python_command("cluster_serving.job.programs.inspection"),
            input=json.dumps({"address": address, "handler": handler}),
            capture_output=True,
            timeout=_TIMEOUT_S,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        found: dict[str, Any] = {"error": f"the store of {shown} does not answer within {_TIMEOUT_S} s"}
    else:
        last = next(reversed(ran.stdout.splitlines()), "")
        # A crash of a library is no reason not to start: the TaskManagers may have another one.
        found = json.loads(last) if last else {"error": f"{shown} cannot be looked at from here"}
    if "error" not in found:
        return Inspection(found["engine"], found["requirement"], found["size"], found["text"])
    if found.get("certain"):
        raise LaunchError(found["error"])
    warn(f"the model is not checked before the TaskManagers fetch it: {found['error']}")
    return Inspection()


def size_of(model: ModelOptions) -> int | None:
    """Return the bytes of a model's files, here or in a store; None if the store does not tell."""
    if is_url(model.path):
        return inspect(model.path, lambda _: None, model.handler).size
    return memory.size_of(Path(model.path))
