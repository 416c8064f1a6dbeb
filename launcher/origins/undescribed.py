"""Folders that no known server describes: what their files are, and the way out of each."""

from contextlib import suppress
from pathlib import Path

from cluster_serving.job.models.folder import check_names, way_out
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.protocol.errors import ModelError

_HANDLER = "move its code into a handler (cluster-serving-init --handler)"
_WAYS = {
    "*.tar.gz": "name this file, with --from",
    "*.zip": "name this file, with --from",
    "code/inference.py": f"SageMaker calls it: {_HANDLER}, and put the files that it loads into model/",
    "model/model.py": f"Truss calls its class Model: {_HANDLER}, load() is its __init__, and put data/ into model/",
    "model_index.json": "several models of diffusers with code between them: load them in a handler",
    "adapter_config.json": "an adapter (PEFT) without its model: merge it with merge_and_unload(), and export all",
    "cog.yaml": f"a project of Cog: {_HANDLER}",
    "serve.yaml": f"a project of Ray Serve: {_HANDLER}; docs/coming-from/ray-serve.md has an example",
    "server.py": f"a program: {_HANDLER}; docs/coming-from/bentoml-litserve.md has an example",
    "models": "perhaps a store of models: name this folder, with --from",
}
"""Path in a folder → what to do with such a file."""


def refuse(folder: Path) -> None:
    """Refuse a folder with its way out; do nothing if its files tell nothing.

    Raises:
        LaunchError: If the files are known, though not as those of a server.
    """
    names = {f"{entry.name}/" if entry.is_dir() else entry.name for entry in folder.iterdir()}
    with suppress(ModelError):
        check_names(names, folder)
        raise LaunchError(
            f"{folder} holds a model that is served as it is: run cluster-serving-init, and set modelPath: {folder}"
        )
    for pattern, way in _WAYS.items():
        for file in sorted(folder.glob(pattern)):
            raise LaunchError(f"{file} cannot be taken over: {way}")
    if way := way_out(names):
        raise LaunchError(f"{folder} cannot be taken over.{way}")
