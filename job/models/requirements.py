"""Packages that the code in a model folder needs: the file `requirements.txt` there, as pip reads it."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_serving.job.options import NO_HANDLER, ModelOptions
from cluster_serving.protocol.errors import EngineMissing, ModelError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

FILE = "requirements.txt"


def read(folder: Path) -> list[Requirement]:
    """Return the requirements that hold for this Python; options of pip (`-i`, `--hash`) are left out.

    Raises:
        ModelError: If a line is not a requirement.
    """
    path = folder / FILE
    if not path.is_file():
        return []
    # Few models have the file, and each command that looks for the model of a folder would import the package.
    from packaging.requirements import InvalidRequirement, Requirement

    found = []
    for number, line in enumerate(path.read_text("utf8").splitlines(), 1):
        text = line.partition("#")[0] if " @ " not in line else line
        text = text.partition(" --")[0].strip().removesuffix("\\").strip()
        if not text or text.startswith("-"):
            continue
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            raise ModelError(
                f"{path}, line {number}: {text!r} is not a requirement; expected a name and versions, such as pandas>=2"
            ) from None
        if requirement.marker is None or requirement.marker.evaluate():
            found.append(requirement)
    return found


def check(folder: Path) -> None:
    """Check that the packages are installed in the versions that are asked for.

    Raises:
        EngineMissing: If one is not; the message has the command that installs all.
        ModelError: As for `read`.
    """
    problems = []
    for requirement in read(folder):
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            problems.append(f"{requirement}, which is not installed")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{requirement}, but {version} is installed")
    if problems:
        raise EngineMissing(
            f"the handler in {folder} needs {'; '.join(problems)}: run pip install -r {folder / FILE} in the "
            "environment that runs the job"
        )


def names(folder: Path, options: ModelOptions) -> list[str]:
    """Return the requirements of a folder as texts, and the distribution of the handler if that is an installed class.

    Raises:
        ModelError: If the module of the handler is neither in the folder nor in an installed distribution.
    """
    found = list(map(str, read(folder)))
    package = options.handler.partition(":")[0].partition(".")[0]
    if options.handler in ("", NO_HANDLER) or (folder / f"{package}.py").is_file() or (folder / package).is_dir():
        return found
    owners = metadata.packages_distributions().get(package)
    if not owners:
        raise ModelError(
            f"handler is {options.handler}, and no installed distribution has the package {package}; move the module "
            f"to the model folder {folder}, or install its distribution"
        )
    return [*found, *owners]
