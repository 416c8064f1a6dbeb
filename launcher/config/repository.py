"""A folder of models, each in a subfolder: one job serves all of them, each under the name of its subfolder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from redis.crc import key_slot

from cluster_serving.job.models.folder import holds_model, version_folders
from cluster_serving.job.options import HostedOptions, JobOptions, ModelOptions
from cluster_serving.job.remote.url import ModelUrl, is_url
from cluster_serving.launcher.config import file
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.config.values import LATEST, job_name
from cluster_serving.launcher.config.versions import resolved
from cluster_serving.protocol.errors import ModelError, ServingError
from cluster_serving.protocol.host import cgroup
from cluster_serving.protocol.redis.addresses import is_cluster_url
from cluster_serving.settings.errors import SettingsError

OWN_KEYS = frozenset(
    {
        *("batchTimeout", "embeddingLayers", "greedyBatching", "imageColor", "imageCrop", "imageLayout", "imageMean"),
        *("imageResample", "imageResize", "imageScale", "imageShortestEdge", "imageStd"),
        *("inferencePrecision", "inferenceTimeout", "inputAlreadyBatched"),
        *("inputShapes", "inputs", "maxBatchSize", "maxImagePixels", "maxTextLength", "maxTokens", "missingValue"),
        *("modelVersion", "normalize", "outputs", "padding", "poolPrompt", "pooling", "postProcessing", "prompt"),
        *("requestDeadline", "tokenizer", "wholeInputs"),
    }
)
"""Keys that the `config.yaml` of a subfolder may have. All others are those of the job."""


_HANDLER_FILE = "handler.py"


@dataclass(frozen=True, slots=True)
class Repository:
    """The subfolders of a folder of models.

    Attributes:
        names: Names of those that hold a model, in order.
        ignored: Those that hold none, have no name of a model, or that of the job; each with the reason.
        misplaced: Names of those whose keys would be in another hash slot of a Redis Cluster than those of the job.
    """

    names: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    misplaced: tuple[str, ...] = ()


def find(config: Config) -> Repository | None:
    """Return the models of the folder `modelPath`; None if it is not a folder of models.

    It is one if it holds no model, handler or version itself, and at least one subfolder that holds a model.
    """
    folder = Path(config.model_path)
    if is_url(config.model_path) or config.handler or config.model_version != LATEST or not folder.is_dir():
        return None
    if holds_model(folder) or _has_versions(folder):
        return None
    names, ignored, misplaced = [], [], []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        if not (holds_model(entry) or _has_versions(entry)):
            ignored.append(f"{entry.name} (it holds no model)")
        elif not _is_name(entry.name):
            ignored.append(f"{entry.name} (no name of a model: letters, digits, '_', '-' and '.', up to 200)")
        elif is_cluster_url(config.redis_url) and key_slot(entry.name.encode()) != key_slot(config.job_name.encode()):
            misplaced.append(entry.name)
        else:
            names.append(entry.name)
    # It harms no other model; alone, it is refused (`problem`).
    if config.job_name in names and len(names) > 1:
        names.remove(config.job_name)
        ignored.append(f"{config.job_name} (the name of the job: rename the subfolder, or set another jobName)")
    return Repository(tuple(names), tuple(ignored), tuple(misplaced)) if names or misplaced else None


def place(path: str) -> str:
    """Return the folder or the address of models for messages, without a password."""
    return str(ModelUrl.parse(path)) if is_url(path) else path


def refuse(config: Config, advice: str) -> None:
    """Refuse what a folder of models cannot be used for; `advice` has `{model}` for the folder of one of them.

    Raises:
        SettingsError: If `modelPath` is such a folder.
    """
    if found := find(config):
        one = Path(config.model_path, (found.names or found.misplaced)[0])
        raise SettingsError(f"{config.model_path} holds several models: {advice.format(model=one)}")


def model_in(config: Config, folder: Path) -> Config:
    """Return the configuration of the model in a folder; one of a folder of models has keys of its own.

    Raises:
        SettingsError: As for the `config.yaml` of a subfolder.
    """
    beside = Path(config.model_path).resolve() == folder.resolve().parent and find(config)
    own = _with_own_keys(config, folder) if beside else config
    return own.model_copy(update={"model_path": str(folder.absolute())})


def problem(config: Config, found: Repository) -> str:
    """Return what a job of several models cannot do, and the configuration asks for; empty for nothing."""
    if config.core_number_per_machine is not None:
        return (
            f"coreNumberPerMachine: {config.core_number_per_machine}, and no layout is measured for a job that serves "
            "several models; remove the key (modelParallelism sets the slots, and threadPerModel the threads of each)"
        )
    if config.watch_model and travels(config):
        return (
            f"watchModel: true, and the models travel with the job (flink.ship: {config.ships}); remove the key "
            "(cluster-serving-restart brings new files)"
        )
    if config.job_name in found.names:
        return f"jobName is {config.job_name}, which is also the name of a model; set another jobName"
    return ""


def travels(config: Config) -> bool:
    """Return True if the models of a job are those that it has brought to other machines at its start."""
    return config.target != "local" and config.ships != "nothing" and not is_url(config.model_path)


def misplacement(config: Config, names: Sequence[str]) -> str:
    """Return why a job cannot have models of these names in its Redis Cluster, and the name that does; empty for none.

    Slots read the streams of several models at once, and scripts use keys of a model and of its job: Redis refuses both
    if the keys are in several hash slots. The part of a name in braces determines the hash slot.
    """
    if not names:
        return ""
    first, others = names[0], f" (as of {', '.join(names[1:4])}{', ...' * (len(names) > 4)})" * (len(names) > 1)
    braces, own = config.job_name.partition("}")[0] + "}", first.rpartition("}")[2]
    return (
        f"redisUrl is a Redis Cluster, and the keys of the model {first}{others} would be in another hash slot than "
        f"those of its job; rename its subfolder to {braces}{own}, the name by which clients then ask it"
    )


def laid_out(config: Config) -> Config:
    """Return the configuration with the layout of a job of several models: one slot, unless the key says otherwise."""
    # The cores of other machines are not known here.
    threads = config.thread_per_model or (default_threads(config.slots) if config.target == "local" else 1)
    return config.model_copy(update={"model_parallelism": config.slots, "thread_per_model": threads})


def default_threads(slots: int) -> int:
    """Return the threads of a slot, if this number of slots share the cores."""
    return max(1, cgroup.cores() // slots)


def with_models(config: Config, options: JobOptions, names: Sequence[str]) -> JobOptions:
    """Return options of a job with those of its models, whose subfolders are in the folder that the options name.

    Of an address, the configuration has the picture (`shipping.inspection.shown`).
    """
    root = config.model_path if is_url(options.model.path) else options.model.path
    models = (hosted(config, options, name, Path(root, name)) for name in names)
    return replace(options, hosted=tuple(models))


def hosted(config: Config, options: JobOptions, name: str, folder: Path, version: str = "1") -> HostedOptions:
    """Return the options of one model of a job, whose files, or a copy of them, are in a folder.

    `version` is that of a model without versions.
    """
    refused, own = "", config
    try:
        own = _with_own_keys(config, Path(config.model_path, name))
        own = resolved(own.model_copy(update={"model_path": str(folder)}))
    except (ServingError, SettingsError) as error:
        refused = str(error).replace(config.model_path, place(options.model.configured or options.model.path))
        own = config.model_copy(update={"model_path": str(folder)})
    made = job_options(own, options.submission, version=int(version))
    configured = str(Path(options.model.configured, name)) if options.model.configured else ""
    model = replace(made.model, configured=configured)
    if is_url(options.model.path):
        model = _at_address(options.model, model, Path(config.model_path))
    return HostedOptions(
        *(name, model, made.batch, made.image, made.post_processing),
        *(made.request_deadline_ms, made.redis.version, made.redis.numbered, refused),
    )


def _at_address(job: ModelOptions, model: ModelOptions, picture: Path) -> ModelOptions:
    """Return options of a model with its address; the options given name a picture of it on this machine.

    Code of the model is run if `handler` of the job names its class, which is the same for all models.
    """
    place = Path(model.path).relative_to(picture)
    handler = job.handler if (picture / place / _HANDLER_FILE).exists() else ""
    return replace(model, path=ModelUrl.parse(job.path).below(place.as_posix()), handler=handler)


def _with_own_keys(config: Config, folder: Path) -> Config:
    """Return the configuration with the keys that the subfolder of a model has in a file of its own.

    Raises:
        SettingsError: If the file has a key that belongs to the job, or is wrong.
    """
    path = folder / file.FILE_NAME
    if not path.exists():
        return config
    given = file.keys_of(path)
    for key, each in given.items():
        if key not in OWN_KEYS:
            raise SettingsError(
                f"{each.place}: {key} belongs to the job, not to one of its models; set it in the job's config.yaml"
            )
    return config.model_copy(update=file.values_of(given, folder))


def _is_name(text: str) -> bool:
    try:
        return job_name(text) == text
    except ValueError:
        return False


def _has_versions(folder: Path) -> bool:
    try:
        return any(map(holds_model, version_folders(str(folder)).values()))
    except ModelError:
        # Versions beside a model, or twice: the start says so.
        return True
