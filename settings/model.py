"""Base class of settings, read from sources by precedence; a wrong value is named with its place and the remedy."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from cluster_serving.settings.addresses import redacted
from cluster_serving.settings.errors import SettingsError

# An address that has neither user nor password nor parameters, even if it is wrong.
_WITHOUT_SECRET = re.compile(r"(rediss?://)?[A-Za-z0-9.-]*(:[0-9]*)?(/\w{0,3})?")
# Part of an address that may be a signature.
_QUERY = re.compile(r"\?.*")
_NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
_KINDS = {str: "text", bool: "a switch", int: "a number", float: "a number", list: "a list", dict: "a mapping"}


class Given(NamedTuple):
    """A value that a source has for a key, and its place for messages: file and line, environment variable, or flag.

    `written` is the text of a scalar, or the list of those of a list, before YAML made numbers or truth values of them.
    """

    value: Any
    place: str
    written: str | list[str] | None = None


class SettingsConfig(ConfigDict, total=False):
    """Options of a class of settings: those of pydantic, and of its environment variables.

    The variable of a key begins with `env_prefix`. With `env_ignore_empty` an empty variable counts as none.
    """

    env_prefix: str
    env_ignore_empty: bool


class Settings(BaseModel):
    """Base class of settings; their keys are flat camelCase, as the original's."""

    # pydantic-settings has sources too, but its import takes as long as all of pydantic.
    model_config: ClassVar[SettingsConfig] = SettingsConfig(
        alias_generator=to_camel,
        arbitrary_types_allowed=True,
        # Most classes are only bases of the class that has values.
        defer_build=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        protected_namespaces=(),
        validate_default=True,
    )

    replaced_by: ClassVar[Mapping[str, frozenset[str]]] = {}
    """By key, the keys that replace it: it does not count if a source before its own has one of them."""

    earlier_names: ClassVar[Mapping[str, str]] = {}
    """By key, the name that it had in an earlier version; it still works, in every source."""


AnySettings = TypeVar("AnySettings", bound=Settings)


Source = Mapping[str, Given]
"""Values of one source, by key."""


def load(kind: type[AnySettings], sources: Sequence[Source], default_place: str = "") -> AnySettings:
    """Merge the values of sources, and check them; the first source that has a key decides.

    A message names `default_place` for a missing value.

    Raises:
        SettingsError: If values are missing or cannot be used; the message has a line for each key.
    """
    values: dict[str, Any] = {}
    for source in sources:
        earlier = values.keys()
        own = {
            key: value for key, (value, *_) in source.items() if not kind.replaced_by.get(key, frozenset()) & earlier
        }
        values = _merged(values, own)
    try:
        with _without_plugins():
            return kind(**values)
    except ValidationError as error:
        problems = (
            _problem(kind, str(detail["loc"][0]), detail["msg"], sources, default_place)
            for detail in error.errors(include_input=False, include_url=False)
        )
        raise SettingsError("\n".join(dict.fromkeys(problems))) from None


@contextmanager
def _without_plugins() -> Iterator[None]:
    """Keep pydantic from looking for plugins, which takes as long as the checks; other models have theirs."""
    before = os.environ.get(_NO_PLUGINS)
    os.environ[_NO_PLUGINS] = "__all__"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NO_PLUGINS]
        else:
            os.environ[_NO_PLUGINS] = before


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of both; for a key of both, the first decides, or with two mappings their entries."""
    merged = second | first
    for key in first.keys() & second.keys():
        if isinstance(first[key], dict) and isinstance(second[key], dict):
            merged[key] = _merged(first[key], second[key])
    return merged


def keys(kind: type[Settings]) -> dict[str, FieldInfo]:
    """Return the fields of settings by their keys."""
    return {field.alias or name: field for name, field in kind.model_fields.items()}


def is_secret(field: FieldInfo) -> bool:
    """Return True if the value of a field must not be in a message."""
    return not field.repr or field.annotation is SecretStr


def expected(field: FieldInfo) -> str:
    """Return what a field expects, in words; empty if its declaration does not say."""
    extra = field.json_schema_extra
    return str(extra["expects"]) if isinstance(extra, dict) else ""


def _problem(kind: type[Settings], name: str, message: str, sources: Sequence[Source], default_place: str) -> str:
    # pydantic names the attribute instead of the key where a default does not pass the checks.
    key = name if name in keys(kind) else kind.model_fields[name].alias or name
    field = keys(kind)[key]
    words = expected(field)
    remedy = f"expected {words}" if words else f"{message[0].lower()}{message[1:]}"
    for source in sources:
        if key in source:
            value, place, _ = source[key]
            return f"{place}: {key} is {shown(key, field, value)}; {remedy}"
    return f"{default_place}: {key} is missing; {remedy}"


def shown(key: str, field: FieldInfo, value: Any) -> str:
    """Return a value and its kind for a message; of a secret the kind alone."""
    named = _KINDS.get(type(value), type(value).__name__)
    # A wrong address may have its password anywhere, so only one that cannot hold a password is shown.
    harmless = key == "redisUrl" and isinstance(value, str) and _WITHOUT_SECRET.fullmatch(value)
    if isinstance(value, str) and "://" in value:
        value = _QUERY.sub("?***", redacted(value))
    return named if is_secret(field) and not harmless else f"{value!r} ({named})"
