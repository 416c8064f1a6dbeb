"""TensorFlow Serving: a base path, whose subfolders are versions of a SavedModel."""

from pathlib import Path

from cluster_serving.launcher.origins.taken import Taken, numbered, tree

EXPECTED = "a base path of TensorFlow Serving, 1/saved_model.pb"

_FLAGS = (
    "the options of tensorflow_model_server: max_batch_size is maxBatchSize here, batch_timeout_micros is batchTimeout "
    "in milliseconds, and inputs and outputs name the tensors of another signature than serving_default"
)


def read(path: Path) -> Taken | None:
    """Return the model of a base path, or of a SavedModel alone; None if the path is neither."""
    if not path.is_dir():
        return None
    versions = [folder for folder in numbered(path) if (folder / "saved_model.pb").is_file()]
    if not versions and not (path / "saved_model.pb").is_file():
        return None
    taken = Taken(f"the SavedModel {path}", left=[_FLAGS])
    taken.name(path.resolve().name)
    if versions:
        # New versions are served as they come, as by that server.
        taken.keys["watchModel"] = True
    for folder in versions or [path]:
        files = tree(folder, f"{folder.name}/" if versions else "")
        taken.files |= {name: file for name, file in files.items() if "assets.extra/" not in name}
        if (folder / "assets.extra").is_dir():
            taken.left.append(f"the warm-up requests of {folder}: a job computes records of its own at its start")
    return taken
