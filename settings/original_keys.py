"""The original's keys and their present names: nested ones (`model: path: …`, up to 0.9), and those without effect."""

from collections.abc import Callable, Collection
from typing import Any

SPARK = "spark"
"""Section that only files of 0.7 and 0.8 have."""

SECTIONS = frozenset({"model", "data", "params", "redis", "flink", "secure", SPARK})
"""Top-level keys that held others."""


def implied(names: Collection[str]) -> dict[str, str]:
    """Return the values that 0.7 and 0.8 implied: the one stream of their clients, the size of images, the best class.

    `names` are the nested keys of the file: those of 0.8 have `data.filter`.
    """
    return {
        "jobName": "image_stream",
        # Their clients scaled images to it; ours for 0.7 sends files as they are.
        "imageResize": "224,224",
        "postProcessing": "topN(1)" if "data.filter" in names else "top_n(1)",
    }


WITHOUT_EFFECT: dict[str, object] = {
    "performance_mode": None,
    "queueused": "redis",
    "kafkaurl": None,
    "secureenabled": False,
    "redissecureenabled": False,
    "redissecurestructstorepassword": None,
    "redissecuretruststorepassword": None,
    "redissecuretruststorepath": None,
    "securestructstorepassword": None,
    "securetruststorepath": None,
}
"""Keys, in lower case, that have no effect, with the only value that they may have; None: any value."""

SPELLINGS = {"redistruststorepath": "redissTrustStorePath", "redistruststoretoken": "redissTrustStoreToken"}
"""Options of the front end as the spelling of the original invites to write them, in lower case."""


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    return "" if value is None else str(value)


def _preference(value: Any) -> str | None:
    # YAML reads ON as true.
    return "throughput" if value is True or str(value).lower() == "on" else None


def _top_n(value: Any) -> str:
    # The clients of 0.7 read another text than those of 0.8.
    return f"top_n({value})"


def _image_size(value: Any) -> str | None:
    """Return width and height of a shape such as `3,224,224`, None for others; a number below 5 is the channels."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or len(parts) != 3 or not all(str(part).strip().isdecimal() for part in parts):
        return None
    sides = [int(part) for part in parts if int(part) >= 5]
    return f"{sides[1]},{sides[0]}" if len(sides) == 2 else None


_NAMES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "model.path": ("modelPath", _same),
    "model.name": ("jobName", _same),
    "model.inputs": ("inputs", _text),
    "model.outputs": ("outputs", _text),
    "data.src": ("redisUrl", _same),
    "data.filter": ("postProcessing", _text),
    "data.image_shape": ("imageResize", _image_size),
    "data.shape": ("imageResize", _image_size),
    "params.batch_size": ("maxBatchSize", _same),
    "params.core_number": ("coreNumberPerMachine", _same),
    "params.model_number": ("modelParallelism", _same),
    "params.top_n": ("postProcessing", _top_n),
    "params.performance_mode": ("prefer", _preference),
    "redis.maxmem": ("redisMaxMemory", _text),
    "redis.timeout": ("redisTimeout", _same),
    "flink.rest": ("flinkRestUrl", _same),
    "secure.model_encrypted": ("modelEncrypted", _same),
    "secure.record_encrypted": ("recordEncrypted", _same),
}

_NESTED_WITHOUT_EFFECT = frozenset(
    {
        "model.mode",
        "data.data_type",
        "data.resize",
        "data.tensor_shape",
        "data.type",
        "params.engine_type",
        "secure.secure_enabled",
        "secure.secure_struct_store_password",
        "secure.secure_trust_store_path",
    }
)


def preference(key: str, value: Any) -> str | None:
    """Return the value of `prefer` that a flat key, in lower case, means; None if it means none."""
    return _preference(value) if key == "performance_mode" else None


def translate(name: str, value: Any) -> tuple[str, Any] | None:
    """Return present key and value of a nested key such as `data.src`; None if it has no effect any more.

    Raises:
        KeyError: If the original had no such key.
        ValueError: If another key has to be used for this value now; the message names that key.
    """
    if name == "secure.secure_enabled" and value is True:
        raise ValueError("for TLS, set redisUrl: rediss://host:port")
    if name in _NESTED_WITHOUT_EFFECT or name.startswith("spark."):
        return None
    key, convert = _NAMES[name]
    converted = None if value is None else convert(value)
    return None if converted is None else (key, converted)
