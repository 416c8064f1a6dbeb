"""Reading `config.yaml` with errors that name the line, and writing the one that `cluster-serving-init` makes."""

from __future__ import annotations

import difflib
import os
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_origin

import yaml
from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from yaml.reader import ReaderError

from cluster_serving.launcher.config import original_keys
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.config.values import redacted
from cluster_serving.launcher.errors import ConfigError

FILE_NAME = "config.yaml"

_KEYS: dict[str, FieldInfo] = {field.alias or name: field for name, field in Config.model_fields.items()}
_CANONICAL = {key.lower(): key for key in _KEYS}
_VARIABLES = {field.alias or name: f"CLUSTER_SERVING_{name.upper()}" for name, field in Config.model_fields.items()}
_MISTYPED = {variable.replace("_", ""): variable for variable in _VARIABLES.values()}

FRONT_END = "http"
"""Section of the file with the options of the HTTP front end, which reads and checks them itself."""

_FRONT_END = """\
# Options of the HTTP front end that cluster-serving-start --http starts; cluster-serving-http --help lists them.
# Expected: a mapping of options, such as {port: 10020, interface: 0.0.0.0}.
# http: {}
"""

# Keys of the original that change nothing here, with the value that they may have (None: any).
_WITHOUT_EFFECT: dict[str, object] = {
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

# Keys whose values are in no message.
_SECRETS = ("recordKey", "modelSecret")
_WITHOUT_SECRET = re.compile(r"(rediss?://)?[A-Za-z0-9.-]*(:[0-9]*)?(/\w{0,3})?")

_HEADER = """\
# Configuration of one serving job. A key that is commented out has the value shown.
"""


def read(path: Path, warn: Callable[[str], None] = lambda _: None, missing_ok: bool = False) -> Config:
    """Read and check a configuration file; `modelPath` becomes absolute.

    An environment variable such as CLUSTER_SERVING_REDIS_URL comes before the key `redisUrl` of the file: a container
    sets addresses, and a password need not be in a file.

    Args:
        path: The file.
        warn: Told of keys that have no effect.
        missing_ok: Use the defaults if there is no such file.

    Raises:
        ConfigError: It cannot be read, or a key or value is not what was expected.
    """
    try:
        text = path.read_text("utf8")
    except FileNotFoundError:
        if not missing_ok:
            raise ConfigError(
                f"{path} does not exist; run cluster-serving-init to make one, or name another with -c"
            ) from None
        text = "modelPath: model"
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    values, places = _parse(path, text, warn)
    for key, variable in _VARIABLES.items():
        # An empty one is none: docker compose sets one for ${NAME:-}.
        if given := os.environ.get(variable):
            values[key], places[key] = _from_environment(key, given), f"environment variable {variable}"
    for variable in sorted(os.environ.keys() - _VARIABLES.values()):
        # As CLUSTER_SERVING_MAXBATCHSIZE, or in other letters.
        if meant := _MISTYPED.get(variable.replace("_", "").upper()):
            warn(f"environment variable {variable} has no effect; did you mean {meant}?")
    try:
        return Config.model_validate(values).located(path.absolute().parent)
    except ValidationError as error:
        problems = (_problem(path, key, values, places) for key in _wrong_keys(error))
        raise ConfigError("\n".join(problems)) from None


def _parse(path: Path, text: str, warn: Callable[[str], None]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values by canonical key, and the place of each; keys without a value keep their default."""
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        pairs = _entries(path, root, loader, warn)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ConfigError(f"{path}, line {mark.line + 1 if mark else '?'}: not valid YAML: {error.problem}") from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{path}, line {line}: not valid YAML: a character of code {error.character}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None

    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for name, place, value in pairs:
        key = _CANONICAL.get(name.lower(), name.lower())
        if key == FRONT_END:
            continue
        if key in places:
            raise ConfigError(f"{place}: {name} is given a second time; first in {places[key]}")
        places[key] = place
        if key in _WITHOUT_EFFECT:
            expected = _WITHOUT_EFFECT[key]
            if value is not None and expected is not None and value != expected:
                advice = "; TLS is asked for by redisUrl: rediss://host:port" if "secure" in key else ""
                raise ConfigError(f"{place}: {name} is {_shown(key, value)}; expected {expected}{advice}")
            warn(f"{place}: {name} has no effect")
        elif key not in _KEYS:
            raise ConfigError(f"{place}: {name} is not a key of this file{_did_you_mean(name)}")
        elif value is not None:
            values[key] = value
    return values, places


def _entries(
    path: Path, root: yaml.Node | None, loader: yaml.SafeLoader, warn: Callable[[str], None]
) -> list[tuple[str, str, Any]]:
    """Name, place and value of each key; the nested ones of the original's early versions under today's names."""
    entries = []
    renamed = []
    for node, value_node in _pairs(path, root):
        name, place = str(node.value), _place(path, node)
        if name not in original_keys.SECTIONS or (isinstance(value_node, yaml.ScalarNode) and value_node.value):
            entries.append((name, place, loader.construct_object(value_node, deep=True)))
            continue
        for inner, inner_value in _pairs(path, value_node) if isinstance(value_node, yaml.MappingNode) else []:
            old, where = f"{name}.{inner.value}", _place(path, inner)
            try:
                new = original_keys.translate(old, loader.construct_object(inner_value, deep=True))
            except KeyError:
                raise ConfigError(f"{where}: {old} is not a key of this file, and was none of the original's") from None
            except ValueError as error:
                raise ConfigError(f"{where}: {old}: {error}") from None
            if new is not None:
                entries.append((new[0], where, new[1]))
                renamed.append(f"{new[0]}: {_written(*new)} (was {old})")
    for node, _ in _pairs(path, root):
        if node.value == original_keys.SPARK:
            given = {name.lower() for name, _, value in entries if value}
            implied = {key: value for key, value in original_keys.IMPLIED.items() if key.lower() not in given}
            entries = [entry for entry in entries if entry[0] not in implied]
            entries += [(key, _place(path, node), value) for key, value in implied.items()]
            renamed += [f"{key}: {value} (which went without saying)" for key, value in implied.items()]
    if renamed:
        warn(f"{path} has nested keys of an early version; write instead: {', '.join(renamed)}")
    return entries


def _written(key: str, value: Any) -> str:
    return redacted(value) if key == "redisUrl" and isinstance(value, str) else str(value)


def _place(path: Path, node: yaml.Node) -> str:
    return f"{path}, line {node.start_mark.line + 1}"


def _pairs(path: Path, root: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(
            f"{path}, line {root.start_mark.line + 1}: expected keys and values, such as modelPath: model"
        )
    return list(root.value)


def _from_environment(key: str, text: str) -> Any:
    """A value as YAML would read it; names, paths, addresses and secrets are text, whatever characters they have."""
    kind = _KEYS[key].annotation
    if kind is str or get_origin(kind) is Literal or key in _SECRETS:
        return text
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text
    return text if kind == tuple[str, ...] and not isinstance(value, list) else value


def _wrong_keys(error: ValidationError) -> list[str]:
    names = [str(detail["loc"][0]) for detail in error.errors(include_input=False, include_url=False)]
    # A default that does not do is reported under the attribute's name.
    return list(dict.fromkeys(_CANONICAL.get(name.lower()) or to_camel(name) for name in names))


def _problem(path: Path, key: str, values: dict[str, Any], places: dict[str, str]) -> str:
    expects = _expects(_KEYS[key])
    if key not in values:
        return f"{path}: {key} is missing; expected {expects}"
    return f"{places[key]}: {key} is {_shown(key, values[key])}; expected {expects}"


def _shown(key: str, value: Any) -> str:
    kind = {str: "text", bool: "a switch", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    named = kind.get(type(value), type(value).__name__)
    if key in _SECRETS:
        return named
    if key == "redisUrl" and not (isinstance(value, str) and _WITHOUT_SECRET.fullmatch(value)):
        # It is wrong in some way, so nothing tells which part of it is the password.
        return named
    return f"{value!r} ({named})"


def _did_you_mean(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), _CANONICAL, n=1)
    return f"; did you mean {_CANONICAL[close[0]]}?" if close else f"; it has {', '.join(_KEYS)}"


def _expects(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra["expects"]) if isinstance(extra, dict) else ""


def template() -> str:
    """The text of a new `config.yaml`: every key with its meaning and default, `modelPath` alone set."""
    parts = [_HEADER]
    for key, field in _KEYS.items():
        comment = textwrap.fill(field.description or "", 118, initial_indent="# ", subsequent_indent="# ")
        parts.append(f"{comment}\n# Expected: {_expects(field)}.\n{_setting(key, field)}\n")
    return "\n".join([*parts, _FRONT_END])


def _setting(key: str, field: FieldInfo) -> str:
    if field.is_required():
        return f"{key}: model"
    if field.default is None:
        return f"# {key}:"
    value = yaml.safe_dump(field.default, default_flow_style=True, width=1000).removesuffix("\n...\n").strip()
    return f"# {key}: {value}".replace("''", '""')
