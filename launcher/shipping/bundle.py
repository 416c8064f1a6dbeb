"""What one job brings along, and its options as they are where the job runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath

from cluster_serving.job.models.folder import check_model, engine_requirements
from cluster_serving.job.options import NO_TOKENIZER, JobOptions, ModelOptions
from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.config import repository, stages, versions
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.shipping import archive, environment, interpreter
from cluster_serving.launcher.shipping.inspection import inspect, shown
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.traces import tracing
from cluster_serving.protocol.values import filters

_STORES = {"s3://": "s3", "gs://": "gcs"}


@dataclass(frozen=True, slots=True)
class Bundle:
    """The archives of a job.

    Attributes:
        options: Options of the job; the model's path is the name of its unpacked archive.
        environment: Archive with interpreter and packages; None if the machines have both.
        packages: Archive with the packages alone; None if the machines have them, or the environment has.
        model: Archive of the model; None if the machines have the model, or fetch it.
    """

    options: JobOptions
    environment: Path | None = None
    packages: Path | None = None
    model: Path | None = None

    @property
    def archives(self) -> list[Path]:
        """All archives."""
        return [path for path in (self.environment, self.packages, self.model) if path]

    @property
    def size(self) -> int:
        """Bytes of all archives."""
        return sum(path.stat().st_size for path in self.archives)

    def arguments(self) -> list[str]:
        """Return the arguments of `flink run` that ship the archives from this machine."""
        unpacked = []
        if self.environment:
            unpacked.append(f"{self.environment}#{environment.NAME}")
        if self.model:
            unpacked.append(f"{self.model}#{self.model.stem}")
        arguments = ["-pyarch", ",".join(unpacked)] if unpacked else []
        if self.packages:
            arguments += ["-pyfs", str(self.packages)]
        if self.environment or self.packages:
            arguments += ["-pyexec", environment.PYTHON if self.environment else interpreter.NAME]
        return arguments

    def python(self, folder: Callable[[Path], str], where: str = "") -> tuple[str, dict[str, str]] | None:
        """Return the shipped interpreter, and the variables by which an embedded one finds its packages.

        `folder` gives the folder of an unpacked archive, and `where` is the prefix that makes it absolute. An
        interpreter that Flink embeds cannot tell its folder from its program. None if the machines have all.
        """
        if self.environment:
            home = folder(self.environment)
            variables = {"PYTHONHOME": f"{where}{home}", "PYTHONPATH": f"{where}{home}/{interpreter.SITE_PACKAGES}"}
            return f"{home}/{interpreter.PROGRAM}", variables
        return (interpreter.NAME, {"PYTHONPATH": f"{where}{folder(self.packages)}"}) if self.packages else None


def load(ships: str, options: JobOptions) -> Bundle:
    """Pack what a job brings along, where that is not packed yet; `ships` is the value of `flink.ship`.

    Raises:
        LaunchError: If something cannot be packed.
        ModelError: If the model folder does not hold exactly one model.
    """
    if ships == "nothing":
        return Bundle(options)
    packages = None
    if ships != "model":
        extras, requirements = _needs_of_all(options)
        packages = environment.ensure(extras, ships == "environment", requirements)
    weights = None
    if not is_url(options.model.path):
        weights = _model(Path(options.model.path))
        options = moved(options, weights.stem)
    if ships == "environment":
        return Bundle(options, environment=packages, model=weights)
    return Bundle(options, packages=packages, model=weights)


def write(config: Config, folder: Path) -> list[Path]:
    """Write the archives of a job to a folder, whatever `flink.ship` is, and return their paths.

    Raises:
        LaunchError: If the folder cannot be written, or something cannot be packed.
        ModelError: If the model folder does not hold exactly one model.
    """
    ships = "packages" if config.ships == "packages" else "environment"
    config = versions.resolved(config)
    options = job_options(config, "package")
    if found := repository.find(shown(config)):
        options = repository.with_models(shown(config), options, found.names)
    loaded = load(ships, options)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy2(archive, folder)) for archive in loaded.archives]
    except OSError as error:
        raise LaunchError(f"the archives cannot be written to {folder}: {error.strerror}") from None


def _model(folder: Path) -> Path:
    """Return the archive `model-<hash>.tar` of a model folder; it is packed again only if the content has changed.

    The archive is not compressed: weights hardly get smaller.
    """
    inside = ((PurePosixPath(file.relative_to(folder)), file) for file in sorted(folder.rglob("*")) if file.is_file())
    files = [(name, file) for name, file in inside if not any(part.startswith(".") for part in name.parts)]
    path = archive.path_of("model", archive.digest_of(files), ".tar")
    if not archive.touch(path):
        archive.write(path, files, "the model")
    return path


def moved(options: JobOptions, folder: str) -> JobOptions:
    """Return options whose model, or whose models, are in another folder: where their archive is unpacked."""
    root = Path(options.model.path)

    def there(model: ModelOptions) -> ModelOptions:
        return replace(model, path=str(Path(folder, Path(model.path).relative_to(root))))

    hosted = tuple(replace(one, model=there(one.model)) for one in options.hosted)
    return replace(options, model=there(options.model), hosted=hosted)


def _needs_of_all(options: JobOptions) -> tuple[set[str], list[str]]:
    """Return what a job needs, see `_needs`, with what each of its models needs if it serves several."""
    if not options.hosted or is_url(options.model.path):
        # Of several models at an address, any engine that is known here may be needed.
        return _needs(options)
    extras = {"job"}
    requirements: dict[str, None] = {}
    for one in options.hosted:
        # The slots name the reason of a model that they cannot load.
        with suppress(ModelError):
            of_one = _needs(options.of_hosted(one))
            extras |= of_one[0]
            requirements |= dict.fromkeys(of_one[1])
    return extras, [*requirements]


def _needs(options: JobOptions) -> tuple[set[str], list[str]]:
    """Return the extras of this distribution that a job needs, and the requirements of its engine and its handler.

    The engine is that of its model alone, if that is known.
    """
    extras = {"job"}
    if is_url(options.model.path):
        extras |= {store for scheme, store in _STORES.items() if options.model.path.startswith(scheme)} | {"remote"}
        found = inspect(options.model.path, lambda _: None, options.model.handler)
        if found.text and options.model.tokenizer != NO_TOKENIZER:
            extras.add("text")
        requirements = [found.requirement] if found.requirement else sorted(engine_requirements())
    else:
        requirements = check_model(options.model).requirements(options.model)
    of_stages = dict(options.redis.stages)
    for kind in stages.kinds() if of_stages else ():
        extras |= kind.extras(of_stages)
        for address in kind.addresses(of_stages):
            extras |= {store for scheme, store in _STORES.items() if address.startswith(scheme)} | {"remote"}
    plug_ins = {entry.name: entry.dist for entry in entry_points(group=filters.GROUP)}
    for name, _ in filters.parse(options.post_processing, plug_ins):
        if distribution := plug_ins.get(name):
            requirements.append(distribution.name)
    if options.model.encrypted or options.image.record_key:
        extras.add("encryption")
    if tracing.exporter():
        extras.add("traces")
    return extras, requirements
