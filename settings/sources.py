"""Sources of settings: keys of `config.yaml`, environment variables, and the command line."""

import argparse
import difflib
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_origin

import yaml
from pydantic.alias_generators import to_snake
from pydantic.fields import FieldInfo

from cluster_serving.settings.errors import SettingsError
from cluster_serving.settings.model import Given, Settings, Source, is_secret, keys

_NEAREST = 3


def key_of(kind: type[Settings], name: str, complaint: str, spellings: Mapping[str, str]) -> str:
    """Return the key that a name in any case means; `spellings` has further names, in lower case.

    Raises:
        SettingsError: If the name is no key; the message is `complaint`, with the key that was probably meant.
    """
    known = {key.lower(): key for key in keys(kind)}
    earlier = {name.lower(): key for key, name in kind.earlier_names.items()}
    if key := known.get(name.lower()) or earlier.get(name.lower()) or spellings.get(name.lower()):
        return key
    nearest = difflib.get_close_matches(name.lower(), known, n=_NEAREST, cutoff=0.0)
    is_close = bool(difflib.get_close_matches(name.lower(), nearest[:1]))
    names = [known[each] for each in nearest]
    remedy = f"did you mean {names[0]}?" if is_close else f"the nearest keys are {', '.join(names)}"
    raise SettingsError(f"{complaint}; {remedy}")


def variable_of(kind: type[Settings], key: str) -> str:
    """Return the environment variable of a key."""
    attribute = next(name for name, field in kind.model_fields.items() if key in (field.alias, name))
    return _variable(kind, attribute)


def _variable(kind: type[Settings], attribute: str) -> str:
    return f"{kind.model_config['env_prefix']}{attribute.upper()}"


def warn_of_mistyped(kind: type[Settings], variables: Mapping[str, str], warn: Callable[[str], None]) -> None:
    """Tell `warn` of each variable that differs from that of a key by case or underscores alone."""
    known = [variable_of(kind, key) for key in keys(kind)]
    # As CLUSTER_SERVING_MAXBATCHSIZE, or in other letters.
    by_letters = {variable.replace("_", ""): variable for variable in known}
    for variable in sorted(variables.keys() - set(known)):
        if meant := by_letters.get(variable.replace("_", "").upper()):
            warn(f"environment variable {variable} has no effect; did you mean {meant}?")


def environment(kind: type[Settings], variables: Mapping[str, str]) -> Source:
    """Return the values that environment variables have.

    The settings' `model_config` says the prefix of the variables, and with `env_ignore_empty` that an empty variable
    counts as none. If it is strict, numbers, switches and lists are read as YAML.
    """
    given: dict[str, Given] = {}
    for key, field in keys(kind).items():
        variable = variable_of(kind, key)
        if variable not in variables and key in kind.earlier_names:
            variable = _variable(kind, to_snake(kind.earlier_names[key]))
        text = variables.get(variable)
        if text is None or (not text and kind.model_config.get("env_ignore_empty")):
            continue
        value = _typed(field, text) if kind.model_config.get("strict") else text
        given[key] = Given(value, f"environment variable {variable}")
    return given


def _typed(field: FieldInfo, text: str) -> Any:
    # Names, paths, addresses and secrets are text, whatever characters they have.
    if field.annotation is str or get_origin(field.annotation) is Literal or is_secret(field):
        return text
    are_names = field.annotation == tuple[str, ...]
    try:
        # Without types, as a name such as 559 is no number.
        value = yaml.load(text, yaml.BaseLoader) if are_names else yaml.safe_load(text)  # noqa: S506
    except (yaml.YAMLError, ValueError):
        return text
    return text if are_names and not isinstance(value, list) else value


def add_options(parser: argparse.ArgumentParser, kind: type[Settings]) -> None:
    """Add an option for each key to a parser, as `--redisHost value` and as `--redis-host value`."""
    for name, field in kind.model_fields.items():
        key = field.alias or name
        earlier = kind.earlier_names.get(key, key)
        flags = dict.fromkeys(f"--{flag}" for flag in (key, name.replace("_", "-"), earlier))
        switch: dict[str, Any] = {"nargs": "?", "const": "true"} if isinstance(field.default, bool) else {}
        meaning = f"{field.description} Default: {field.default}." if field.default else f"{field.description}"
        parser.add_argument(*flags, dest=key, metavar="VALUE", help=meaning.replace("%", "%%"), **switch)


def command_line(parsed: Mapping[str, str]) -> Source:
    """Return the values that a command line has, parsed with the options of `add_options`."""
    return {key: Given(text, f"--{key}") for key, text in parsed.items()}
