"""Settings of an embedded model, which are the keys of `config.yaml` in snake case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cluster_serving.job.options import BatchOptions, ImageOptions, JobOptions, ModelOptions
from cluster_serving.job.remote.url import absolute

_ANY_ROWS = 1 << 31
_KINDS: dict[str, type] = {"model": ModelOptions, "image": ImageOptions, "batch": BatchOptions}
_FIELDS = {
    "model": {field.name for field in fields(ModelOptions)} - {"path", "slot", "configured"},
    "image": {field.name for field in fields(ImageOptions)} - {"record_key"},
    "batch": {"max_batch_size"},
}


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a model. Predictors with equal settings share a copy of it.

    Attributes:
        path: Folder or address of the model, or folder of its versions.
        sized: True if the caller has chosen `max_batch_size`.
    """

    model: ModelOptions
    image: ImageOptions
    batch: BatchOptions
    post_processing: str = ""
    secret: tuple[str, str] = ("", "")
    sized: bool = False

    @classmethod
    def of(cls, path: str | Path, options: Mapping[str, Any]) -> Settings:
        """Check options.

        Raises:
            TypeError: If there is no such option.
            ValueError: If a value is of a wrong type; the message names the option.
        """
        given = dict(options)
        rest = {name: given.pop(name) for name in ("post_processing", "secret") if name in given}
        found: dict[str, dict[str, Any]] = {group: {} for group in _KINDS}
        for name, value in given.items():
            if name not in _keys():
                raise TypeError(f"Predictor has no option {name!r}; the options are {', '.join(sorted(_keys()))}")
            group, field = _keys()[name]
            found[group][field] = _checked(group, field, name, value)
        address = absolute(str(path))
        return cls(
            ModelOptions(address, **found["model"]),
            ImageOptions(**found["image"]),
            BatchOptions(**found["batch"], max_rows=_ANY_ROWS),
            **rest,
            sized=bool(found["batch"]),
        )

    @classmethod
    def of_job(cls, options: JobOptions, sized: bool) -> Settings:
        """Return the settings of a job."""
        batch = replace(options.batch, max_rows=_ANY_ROWS)
        return cls(options.model, options.image, batch, options.post_processing, sized=sized)

    @property
    def path(self) -> str:
        """Folder or address of the model."""
        return self.model.path

    def at(self, path: str) -> Settings:
        """Return the settings of the same model at another path."""
        return replace(self, model=replace(self.model, path=path))


@cache
def _keys() -> dict[str, tuple[str, str]]:
    """Return group and field of each option."""
    return {_option(group, field): (group, field) for group, names in _FIELDS.items() for field in names}


def _option(group: str, field: str) -> str:
    is_prefixed = field == "encrypted" or (group == "image" and group not in field)
    return f"{group}_{field}" if is_prefixed else field.removesuffix("_s")


def _checked(group: str, field: str, name: str, value: Any) -> Any:
    if field == "padding":
        value = tuple(dict(value).items())
    if field in ("mean", "std") and isinstance(value, int | float):
        value = (value,)
    try:
        whole: object = TypeAdapter(_KINDS[group]).validate_python({"path": ""} | {field: value})
    except ValidationError as error:
        raise ValueError(f"{name}={value!r}: {error.errors()[0]['msg']}") from None
    return getattr(whole, field)
