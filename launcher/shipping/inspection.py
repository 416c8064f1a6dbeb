"""Inspection of what the TaskManagers fetch from a store: what this machine can tell of it beforehand."""

import atexit
import json
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cluster_serving.job.options import ModelOptions
from cluster_serving.job.remote.url import ModelUrl, is_url
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import memory
from cluster_serving.launcher.services.supervisor import python_command

_TIMEOUT_S = 30

_pictures: dict[str, tempfile.TemporaryDirectory[str]] = {}


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
    found = _looked(address, handler)[0]
    if "error" not in found:
        return Inspection(found["engine"], found["requirement"], found["size"], found["text"])
    if found.get("certain"):
        raise LaunchError(found["error"])
    warn(f"the model is not checked before the TaskManagers fetch it: {found['error']}")
    return Inspection()


def shown(config: Config) -> Config:
    """Return a configuration with which `config.repository` finds the models at an address; none of them is fetched.

    Its `modelPath` is their picture, a folder of this machine (`job.programs.picture`). Any other configuration is
    returned as it is.
    """
    if not is_url(config.model_path):
        return config
    found, picture = _looked(config.model_path, config.handler)
    return config.model_copy(update={"model_path": picture, "handler": ""}) if found.get("several") else config


def unknown(config: Config) -> str:
    """Return why nothing is known of what is at the address of a configuration; empty if something is."""
    return _looked(config.model_path, config.handler)[0].get("error", "") if is_url(config.model_path) else ""


def look_again() -> None:
    """Forget what is known: the next look asks the store. A command looks once, and a controller lives long."""
    while _pictures:
        _pictures.popitem()[1].cleanup()
    _looked.cache_clear()


atexit.register(look_again)


def picture_of(path: str) -> Path:
    """Return the folder that stands for a model: itself, or of one at an address its part of the picture."""
    for address, picture in _pictures.items() if is_url(path) else ():
        if place := ModelUrl.parse(address).path_to(ModelUrl.parse(path)):
            return Path(picture.name, place)
    return Path(path)


def size_of(model: ModelOptions) -> int | None:
    """Return the bytes of a model's files, here or in a store; None if the store does not tell."""
    if is_url(model.path):
        return inspect(model.path, lambda _: None, model.handler).size
    return memory.size_of(Path(model.path))


@cache
def _looked(address: str, handler: str) -> tuple[dict[str, Any], str]:
    url = ModelUrl.parse(address)
    folder = tempfile.TemporaryDirectory(prefix="cluster-serving-picture-")
    _pictures[address] = folder
    try:
        ran = subprocess.run(  # noqa: S603 - our own module, no shell
            python_command("cluster_serving.job.programs.inspection"),
            input=json.dumps({"address": address, "handler": handler, "picture": folder.name}),
            capture_output=True,
            timeout=_TIMEOUT_S,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        found: dict[str, Any] = {"error": f"the store of {url} does not answer within {_TIMEOUT_S} s"}
    else:
        last = next(reversed(ran.stdout.splitlines()), "")
        # A crash of a library is no reason not to start: the TaskManagers may have another one.
        found = json.loads(last) if last else {"error": f"{url} cannot be looked at from here"}
    return found, folder.name
