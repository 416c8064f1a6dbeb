"""Files that `cluster-serving-init --handler` writes."""

from pathlib import Path

from cluster_serving.settings.errors import SettingsError

_FILES = ("handler.py", "test_handler.py")


def write(folder: Path, force: bool) -> list[Path]:
    """Write the files into a model folder, and return their paths.

    Raises:
        SettingsError: If one of them is there already, and is not to be overwritten.
    """
    paths = [folder / name for name in _FILES]
    if not force and (there := next((path for path in paths if path.exists()), None)):
        raise SettingsError(f"{there} exists already; edit it, or use --force to overwrite it")
    for path in paths:
        path.write_text(Path(__file__).with_name(path.name).read_text("utf8"), "utf8")
    return paths
