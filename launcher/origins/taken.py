"""What is taken over from another server: files of the model, keys of `config.yaml`, and what is left."""

import re
import shutil
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from cluster_serving.launcher.config.file import FILE_NAME
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins.fields import Fields
from cluster_serving.settings.errors import SettingsError

Source = Path | zipfile.Path
"""A file or folder of the other server, on disk or in an archive."""

REQUIREMENTS = "requirements.txt: the engine alone is needed, and the start says how to install it"
"""What is said of the packages that another server installed for a model."""

_MOST_LISTED = 8
_MOST_CLASSES = 1_000_000


@dataclass
class Taken:
    """A model of another server.

    Attributes:
        origin: The model in the words of its server, for messages.
        files: Path in our model folder → the file to copy there, or its content.
        keys: Keys of `config.yaml` with their values.
        left: A line for each thing that is not taken over, with the way out.
        own: Of several models: subfolder of each → keys of its own `config.yaml`.
    """

    origin: str
    files: dict[str, Source | bytes] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    own: dict[str, dict[str, Any]] = field(default_factory=dict)

    def name(self, text: str) -> None:
        """Set `jobName`, to a name that a job can have."""
        self.keys["jobName"] = re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:200].lstrip(".") or "model"

    def labels(self, names: Mapping[str, Any]) -> None:
        """Add `labels.txt`, a line for each class, from the names by the number of the class.

        Raises:
            LaunchError: If a class has no number, or too large a one.
        """
        for number in names:
            if not str(number).isdecimal() or int(number) >= _MOST_CLASSES:
                raise LaunchError(
                    f"{self.origin} names the class {str(number)[:64]!r}; expected a number below {_MOST_CLASSES:,}"
                )
        lines = {int(number): " ".join(str(name).split()) for number, name in names.items()}
        texts = [lines.get(number, str(number)) for number in range(max(lines, default=-1) + 1)]
        self.files["labels.txt"] = "".join(f"{text}\n" for text in texts).encode()

    def write(self, folder: Path, force: bool) -> None:
        """Write the files into a model folder.

        Raises:
            SettingsError: If the folder has files already, and `force` is False.
        """
        if not force and folder.is_dir() and any(folder.iterdir()):
            raise SettingsError(f"{folder} has files already; name a new folder, as in -c FOLDER/config.yaml")
        for name, source in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, bytes):
                (folder / name).write_bytes(source)
                continue
            with source.open("rb") as content, (folder / name).open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
        for name, keys in self.own.items():
            if keys:
                (folder / name / FILE_NAME).write_text(
                    yaml.safe_dump(keys, sort_keys=False, allow_unicode=True), "utf8"
                )

    def report(self) -> Iterator[str]:
        """Return the lines that say what was taken over, and what was not."""
        names = sorted(self.own or self.files)
        more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
        yield f"Took over {self.origin}{': ' if names else ', without files'}{', '.join(names[:_MOST_LISTED])}{more}"
        for key, value in self.keys.items():
            yield f"  set   {key}: {_shown(value)}"
        for name, keys in self.own.items():
            if keys:
                yield f"  set   {name}/{FILE_NAME}: {', '.join(f'{key}: {_shown(keys[key])}' for key in keys)}"
        yield from (f"  left  {line}" for line in self.left)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def member(root: Source, name: object) -> Source:
    """Return the file or folder that a file of another server names.

    Raises:
        LaunchError: If there is no such file, or the name leads out of the folder.
    """
    parts = PurePosixPath(str(name)).parts
    path = root.joinpath(*parts) if parts and ".." not in parts and "/" not in parts else None
    if path is None or not (path.is_file() or path.is_dir()):
        raise LaunchError(f"{root} names the file {str(name)[:200]!r}, and holds no such file")
    return path


def external_data(model: Source, root: Source) -> dict[str, Source | bytes]:
    """Return the files below a folder that a model of ONNX names as the places of its weights, by their path.

    The model is not parsed: a file counts if the model holds its path.
    """
    if not model.name.endswith(".onnx"):
        return {}
    found = {name: file for name, file in below(root) if file.name != model.name}
    content = model.read_bytes() if found else b""
    return {name: file for name, file in found.items() if name.encode() in content}


def below(folder: Source, above: str = "") -> Iterator[tuple[str, Source]]:
    """Yield the files below a folder, each with its path in it."""
    for path in folder.iterdir():
        if path.is_dir():
            yield from below(path, f"{above}{path.name}/")
        else:
            yield f"{above}{path.name}", path


def mapping(file: Source, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return what a file of JSON or YAML holds, as `parse` reads it; an empty file of YAML holds nothing.

    Raises:
        LaunchError: If the file cannot be read, or holds something else than names with values.
    """
    try:
        content = parse(file.read_text(encoding="utf8"))
    except (ValueError, yaml.YAMLError) as error:
        raise LaunchError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(content or {}, dict):
        raise LaunchError(f"{file} holds a {type(content).__name__}; expected names with values")
    return content or {}


def tree(folder: Path, below: str = "") -> dict[str, Source | bytes]:
    """Return the files of a folder by their path in the model folder; hidden ones are left out.

    The folder `variables` of a frozen SavedModel is empty, and a part of it: it gets a hidden file.
    """
    names: dict[Path, Source | bytes] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            names[path.relative_to(folder)] = path
        elif path.name == "variables" and not any(path.iterdir()):
            names[path.relative_to(folder) / ".keep"] = b""
    return {f"{below}{name}": source for name, source in names.items() if not str(name).startswith(".")}


def take_versions(taken: Taken, name: str, policy: Fields, found: Collection[int]) -> None:
    """Take the policy that says which versions are served, as TensorFlow Serving and Triton write it.

    Raises:
        LaunchError: If the policy names one version, which is not among those found.
    """
    wanted = policy.part("specific").every("versions")
    several = (policy.part("latest").take("num_versions") or 1) > 1
    kept = [kind for kind in ("specific", "all") if kind in policy]
    policy.part("all")
    if len(wanted) == 1:
        if wanted[0] not in found:
            raise LaunchError(f"{taken.origin} serves version {wanted[0]}; found: {', '.join(map(str, sorted(found)))}")
        taken.keys["modelVersion"] = wanted[0]
    elif kept or several:
        taken.left.append(f"{name}: the latest is served, and a second one beside it as a canary or shadow")


def numbered(folder: Path) -> list[Path]:
    """Return the subfolders with a number as their name, which are versions of a model."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal())
