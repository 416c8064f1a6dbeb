"""TensorFlow Serving: the files of its options that lie beside the models, told apart by their fields."""

from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

from cluster_serving.launcher.origins import text_proto
from cluster_serving.launcher.origins.fields import NO_KEY, Fields
from cluster_serving.launcher.origins.taken import Taken

SUFFIXES = (".config", ".conf", ".cfg", ".pbtxt", ".proto", ".txt", "")
MOST_BYTES = 1 << 20

_BATCHING = frozenset(
    {
        *("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads", "thread_pool_name"),
        *("allowed_batch_sizes", "pad_variable_length_inputs", "enable_large_batch_splitting"),
        *("max_execution_batch_size", "low_priority_max_batch_size", "mixed_priority_batching_policy"),
    }
)
_WAYS = {
    "num_batch_threads": "the number of slots is modelParallelism, and the threads of one call threadPerModel",
    "allowed_batch_sizes": "a batch has any number of records, without fillers",
    "pad_variable_length_inputs": "the key padding names the inputs of different sizes, with the value that fills up",
    "enable_large_batch_splitting": "a request of many records is split into batches anyway",
    "thread_pool_name": "each slot has threads of its own",
    "max_execution_batch_size": "maxBatchSize is the size of a batch that is computed",
    "mixed_priority_batching_policy": "a request names its priority, as in X-Priority (docs/how-to/limits.md)",
    "low_priority_max_batch_size": "a request names its priority, as in X-Priority (docs/how-to/limits.md)",
}
_TLS = frozenset({"server_key", "server_cert", "custom_ca", "client_verify"})
_WARM = "a job computes records of its own at its start"
_LEGACY = {
    "session_config": "threadPerModel has the threads of a session, and device its device",
    "enable_model_warmup": _WARM,
    "model_warmup_options": _WARM,
    "saved_model_tags": "the graph with the tag serve is loaded",
    "prefer_tflite_model": "the SavedModel is loaded",
    "enable_session_metadata": "the model's name and version are in metrics and answers of the v2 protocol",
}
"""Field of a platform → what to do instead."""

_METRICS = "the front end has /metrics for Prometheus on its own port (docs/how-to/monitoring.md)"


def take(models: list[Taken], folder: Path, known: Path | None = None) -> list[str]:
    """Add the keys of the files in a folder to each model; return lines for what is left.

    `known` is the list of models, which is read elsewhere.
    """
    left: list[str] = []
    for file, fields in _files(folder, known):
        if "prometheus_config" in fields:
            settings = fields.part("prometheus_config")
            settings.take("enable"), settings.take("path")
            left += [f"prometheus_config of {file.name}: {_METRICS}", *fields.left(file.name)]
        elif _TLS.intersection(fields):
            # Their values are secrets.
            left += fields.left(
                file.name, "the section http has the certificate of the front end (docs/how-to/security.md)"
            )
        elif "platform_configs" in fields:
            left += _take_platforms(models, file, fields)
        else:
            left += _take_batching(models, file.name, fields)
    return left


def take_own(models: list[Taken], file: Path) -> list[str]:
    """Add the keys of the file with the batches of one model, which need not exist; return lines for what is left."""
    found = [fields for one, fields in _files(file.parent, None) if one == file]
    return [line for fields in found for line in _take_batching(models, file.name, fields)]


def _files(folder: Path, known: Path | None) -> Iterator[tuple[Path, Fields]]:
    for file in sorted(folder.iterdir()):
        if not file.is_file() or file == known or file.suffix not in SUFFIXES or file.stat().st_size > MOST_BYTES:
            continue
        try:
            fields = Fields(text_proto.parse(file.read_text("utf8")), repeated=True)
        except ValueError:
            continue  # not a message
        if _BATCHING.union(_TLS, ("prometheus_config", "platform_configs")).intersection(fields):
            yield file, fields


def _take_platforms(models: list[Taken], file: Path, fields: Fields) -> list[str]:
    """Take the batches that the platforms name; sessions of TensorFlow are as `thread_per_model` makes them."""
    left = []
    for platform in fields.parts("platform_configs"):
        platform.take("key")
        adapter = platform.part("value").part("source_adapter_config")
        for config in [part for name in adapter for part in adapter.parts(name)]:
            legacy = config.part("legacy_config")
            left += _take_batching(models, file.name, legacy.part("batching_parameters"))
            left += legacy.left(f"legacy_config of {file.name}", NO_KEY, _LEGACY)
    return left + fields.left(file.name)


def _take_batching(models: list[Taken], file: str, fields: Fields) -> list[str]:
    values = {name: _number(fields, name) for name in ("max_batch_size", "batch_timeout_micros")}
    if _number(fields, "enable_large_batch_splitting"):
        values["max_batch_size"] = _number(fields, "max_execution_batch_size") or values["max_batch_size"]
    batches, most = _number(fields, "max_enqueued_batches"), values["max_batch_size"]
    keys = {"maxBatchSize": most, "batchTimeout": values["batch_timeout_micros"]}
    if keys["batchTimeout"]:
        keys["batchTimeout"] = ceil(keys["batchTimeout"] / 1000)
    if batches and most:
        keys["maxQueueLength"] = batches * most
    for taken in models:
        taken.keys |= {key: value for key, value in keys.items() if value}
    left = [f"max_enqueued_batches of {file}: maxQueueLength counts requests"] if batches and not most else []
    for name, way in _WAYS.items():
        fields.every(name)
        left += fields.leave(file, way, name)
    return left + fields.left(file)


def _number(fields: Fields, name: str) -> Any:
    """Return a number, which is the value of a message of its own."""
    return fields.part(name).take("value") if fields.parts(name) else None
