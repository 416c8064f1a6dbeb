"""Detection of the kind of a model folder by file names, without importing an engine."""

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from cluster_serving.job.models import requirements
from cluster_serving.job.models.foreign import way_out
from cluster_serving.job.models.formats import Format, formats
from cluster_serving.job.models.location import locate
from cluster_serving.job.models.text import tokenizer
from cluster_serving.job.options import NO_HANDLER, ModelOptions
from cluster_serving.job.remote.fetch import parse
from cluster_serving.job.remote.url import is_url
from cluster_serving.protocol.errors import EngineMissing, ModelError

_MAX_LISTED = 20


HANDLER_FILE = "handler.py"
"""Module of a model folder with code around the model (`job.handlers`)."""

# Of the libraries that a handler calls, nothing is known.
HANDLER = Format("Python handler", "", "numpy", ((HANDLER_FILE,),), lock="Python handler")
"""A folder that a handler serves, with any number of models."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of the one model in a folder; `paths` has one path per part of the format, all files for a handler."""

    format: Format
    folder: Path
    paths: tuple[Path, ...]

    def requirements(self, options: ModelOptions) -> list[str]:
        """Return the requirements that install the engine; of a handler its own, and those of its models' engines."""
        text = [tokenizer.REQUIREMENT] if tokenizer.is_used(self.folder, options.tokenizer) else []
        if self.format != HANDLER:
            return [self.format.requirement, *text]
        names = [path.name for path in self.paths]
        engines = {
            format.requirement
            for format in formats()
            if all(_matching(names, patterns, format.ignored) for patterns in format.parts)
            and importlib.util.find_spec(format.package)
        }
        return [*requirements.names(self.folder, options), *sorted(engines), *text]


def detect(folder: str | Path) -> ModelFiles:
    """Find the one model in a folder. Subfolders, hidden files and unrelated files do not matter.

    Raises:
        ModelError: If there is no such folder, or it holds no model, a part of a model, or more than one.
    """
    folder = Path(folder)
    return identify(_list(folder), folder)


def identify(names: Iterable[str], folder: str | Path) -> ModelFiles:
    """Find the one model among the names in a folder, of which those of subfolders end with `/`.

    `folder` stands for the folder in messages, and need not be on this machine.

    Raises:
        ModelError: If there is no model, a part of a model, or more than one.
    """
    names = sorted(name for name in names if not name.startswith("."))
    matches_of = {
        format: [_matching(names, patterns, format.ignored) for patterns in format.parts] for format in formats()
    }
    complete = [format for format, parts in matches_of.items() if all(parts)]
    if not complete:
        begun = [format for format, parts in matches_of.items() if any(parts)]
        raise _error(folder, names, "only a part of a model" if begun else "no model", begun or formats())
    complete = [format for format in complete if not format.yields] or complete
    format, parts = complete[0], matches_of[complete[0]]
    if len(complete) > 1 or any(len(matches) > 1 for matches in parts):
        raise _error(folder, names, "more than one model", complete)
    return ModelFiles(format, Path(folder), tuple(Path(folder, matches[0]) for matches in parts))


def holds_model(folder: Path) -> bool:
    """Return True if a folder holds a model, a part of one, or a handler."""
    try:
        return any(map(is_model_file, names := _list(folder))) or bool(identify(names, folder))
    except ModelError:
        return False


def holds_several(names: Iterable[str]) -> bool:
    """Return True if a folder with these names may hold several models: it has subfolders, and no model itself."""
    names = [name for name in names if not name.startswith(".")]
    if not any(name.endswith("/") for name in names) or any(map(is_model_file, names)):
        return False
    try:
        return not identify(names, "")
    except ModelError:
        return True


def is_model_file(name: str) -> bool:
    """Return True for the name of a part of a model; that of a subfolder ends with `/`.

    Names that files of other purposes have, too (`Format.yields`), do not count.
    """
    return name == HANDLER_FILE or any(
        _matching([name], patterns, format.ignored) and not name.startswith(".")
        for format in formats()
        for patterns in format.parts
        if not format.yields
    )


def select(folder: Path, name: str) -> ModelFiles:
    """Find the model of a name in a folder: a subfolder; or a file, with the files that differ in their suffix only.

    Raises:
        ModelError: If there is no such file or folder, or it is no model.
    """
    names = _list(folder)
    if f"{name.removesuffix('/')}/" in names:
        return detect(folder / name)
    if name not in names:
        listed = ", ".join(sorted(names)[:_MAX_LISTED])
        raise ModelError(f"the model folder {folder} has no file {name}; it holds {listed}")
    stem = Path(name).stem
    return identify({other for other in names if other == name or Path(other).stem in (stem, "graph_meta")}, folder)


def is_handled(names: Iterable[str], options: ModelOptions) -> bool:
    """Return True if a handler serves the model folder that has these names.

    Raises:
        ModelError: If the folder is that of an address, and the options do not name the handler that came with it.
    """
    if options.handler or HANDLER_FILE not in names:
        return options.handler not in ("", NO_HANDLER)
    if is_url(options.path):
        raise ModelError(
            f"the model {parse(options.path)} brings Python code ({HANDLER_FILE}), which is not run unless config.yaml "
            "asks for it: set handler: handler:Handler (its class) if you trust the address, or handler: none to serve "
            "the model alone"
        )
    return True


def check(options: ModelOptions) -> ModelFiles:
    """Find the model, which is fetched if it is at an address, and check its engine, which is not imported.

    Of a folder that a handler serves, the engines are not checked: the handler may need any of them, or none.

    Raises:
        ModelError: As for `locate`, `detect` and `is_handled`.
        EngineMissing: If the engine, or a package that a handler needs, is not installed. The message has the command
            that installs it.
    """
    folder = locate(options.path)
    names = _list(folder)
    if is_handled(names, options):
        requirements.check(folder)
        return ModelFiles(HANDLER, folder, tuple(folder / name for name in sorted(names) if not name.startswith(".")))
    try:
        files = identify(names, folder)
    except ModelError as error:
        if not is_url(options.path):
            raise
        place = str(parse(options.path))
        several = sorted(name for name in names if name.endswith("/") and holds_model(folder / name))
        if several:
            raise ModelError(
                f"{place} is an archive of several models ({', '.join(several[:_MAX_LISTED])}), and the command that "
                "started the job could not look into it: name one of them in modelPath, such as "
                f"{place}!/{several[0].rstrip('/')}, or unpack all into a folder here or in a store such as s3://"
            ) from None
        raise ModelError(str(error).replace(str(folder), place)) from None
    check_engine(files.format, options.path)
    if tokenizer.is_used(folder, options.tokenizer):
        tokenizer.check(folder)
    return files


def check_engine(format: Format, path: str) -> None:
    """Check that the engine of the model at a path or address is installed.

    Raises:
        EngineMissing: If it is not.
    """
    if importlib.util.find_spec(format.package) is None:
        place = parse(path) if is_url(path) else path
        raise EngineMissing(
            f"the model in {place} needs {format.engine}, and the Python package {format.package} is not "
            f"installed: run pip install '{format.requirement}'"
        )


def _list(folder: Path) -> list[str]:
    if not folder.exists():
        raise ModelError(f"the model folder {folder} does not exist")
    if not folder.is_dir():
        raise ModelError(f"{folder} is a file; modelPath has to name the folder of the model")
    try:
        return [entry.name + "/" * entry.is_dir() for entry in folder.iterdir()]
    except OSError as error:
        raise ModelError(f"the model folder {folder} cannot be read: {error.strerror}") from error


def _matching(names: list[str], patterns: tuple[str, ...], ignored: frozenset[str]) -> list[str]:
    return [name for name in names if _matches(name, patterns) and not _matches(name, ignored)]


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in patterns)


def _error(folder: str | Path, names: list[str], problem: str, expected: Iterable[Format]) -> ModelError:
    listed = ", ".join(names[:_MAX_LISTED]) or "nothing"
    if len(names) > _MAX_LISTED:
        listed += f" and {len(names) - _MAX_LISTED} more"
    formats = "; ".join(map(str, expected))
    numbered = any(name.removesuffix("/").isdecimal() for name in names)
    hint = " If the subfolders are versions, name one in modelVersion." if numbered else ""
    way = "" if hint else way_out(names)
    return ModelError(
        f"the model folder {folder} holds {problem}. Found: {listed}.{way} Expected one of: {formats}.{hint}"
    )
