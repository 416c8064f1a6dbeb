"""Base class of settings, read from sources by precedence; a wrong value is named with its place and the remedy."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import SecretStr, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from cluster_serving.settings.addresses import redacted
from cluster_serving.settings.errors import SettingsError

# An address that has neither user nor password nor parameters, even if it is wrong.
_WITHOUT_SECRET = re.compile(r"(rediss?://)?[A-Za-z0-9.-]*(:[0-9]*)?(/\w{0,3})?")
# Part of an address that may be a signature.
_QUERY = re.compile(r"\?.*")
# Argument that hands the sources over; no key of settings begins with an underscore.
_SOURCES = "_sources"
_KINDS = {str: "text", bool: "a switch", int: "a number", float: "a number", list: "a list", dict: "a mapping"}


class Given(NamedTuple):
    """A value that a source has for a key, and its place for messages: file and line, environment variable, or flag.

    `written` is the text of a scalar, or the list of those of a list, before YAML made numbers or truth values of them.
    """

    value: Any
    place: str
    written: str | list[str] | None = None


class Settings(BaseSettings):
    """Base class of settings; their keys are flat camelCase, as the original's."""

    model_config = SettingsConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, hide_input_in_errors=True, protected_namespaces=()
    )

    replaced_by: ClassVar[Mapping[str, frozenset[str]]] = {}
    """By key, the keys that replace it: it does not count if a source before its own has one of them."""

    earlier_names: ClassVar[Mapping[str, str]] = {}
    """By key, the name that it had in an earlier version; it still works, in every source."""

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: Any, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources that `load` gives; without them, only keyword arguments count."""
        return tuple(init_settings.init_kwargs.get(_SOURCES, (init_settings,)))


AnySettings = TypeVar("AnySettings", bound=Settings)


class Source(PydanticBaseSettingsSource):
    """Values of one source, by key."""

    def __init__(self, kind: type[Settings], given: Mapping[str, Given]) -> None:
        super().__init__(kind)
        self.given = given
        self._replaced_by = kind.replaced_by  # `settings_cls` of the base class has no such attribute for mypy.

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return value and key of a field, and that the value is no JSON to decode."""
        key = field.alias or field_name
        return self.given[key].value if key in self.given else None, key, False

    def __call__(self) -> dict[str, Any]:
        """Return the values that no source before this one replaces."""
        return {
            key: value
            for key, (value, *_) in self.given.items()
            if not self._replaced_by.get(key, frozenset()) & self.current_state.keys()
        }


def load(kind: type[AnySettings], sources: Sequence[Source], default_place: str = "") -> AnySettings:
    """Merge the values of sources, of which the first that has a key decides, and check them.

    A message names `default_place` for a missing value.

    Raises:
        SettingsError: If values are missing or cannot be used; the message has a line for each key.
    """
    try:
        return kind(**{_SOURCES: sources})
    except ValidationError as error:
        problems = (
            _problem(kind, str(detail["loc"][0]), detail["msg"], sources, default_place)
            for detail in error.errors(include_input=False, include_url=False)
        )
        raise SettingsError("\n".join(dict.fromkeys(problems))) from None


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
        if key in source.given:
            value, place, _ = source.given[key]
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
