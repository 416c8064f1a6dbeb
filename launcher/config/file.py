"""The job's `config.yaml`: read and checked, and written by `cluster-serving-init`."""

import json
import os
import textwrap
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from cluster_serving.launcher.config import stages, targets
from cluster_serving.launcher.config.model import Config, with_all_keys
from cluster_serving.settings import original_keys, sources, yaml_file
from cluster_serving.settings.errors import SettingsError
from cluster_serving.settings.model import Given, Settings, expected, keys, load, shown

FILE_NAME = "config.yaml"

_FRONT_END = f"""\
# Options of the HTTP front end that cluster-serving-start --http starts; cluster-serving-http --help lists them.
# Expected: a mapping of options, such as {{port: 10020, interface: 0.0.0.0}}.
# {yaml_file.FRONT_END}: {{}}
"""
_SECTIONS = {
    "autoscale": """\
# Number of slots that follows the load, between two limits (docs/how-to/changes.md#without-a-command).
autoscale:
""",
    "flink": """\
# Where the job runs, and what it brings there; docs/how-to/deploy/ has a page for each target.
flink:
""",
}
_HEADER = """\
# Configuration of one serving job. A key that is commented out has the value shown. The first seven are those that most
# jobs set.
"""
_FIRST = ("modelPath", "jobName", "redisUrl", "modelParallelism", "imageResize", "postProcessing", "requestDeadline")
_OTHERS = "# ---- All other keys ----\n"


def read(path: Path, warn: Callable[[str], None] = lambda _: None, missing_ok: bool = False) -> Config:
    """Read and check a configuration file; `modelPath` becomes absolute.

    An environment variable such as CLUSTER_SERVING_REDIS_URL comes before the key `redisUrl` of the file: a container
    sets addresses, and a password need not be in a file.

    `warn` receives a message for each key or variable that has no effect. With `missing_ok`, the defaults are used if
    the file does not exist.

    Raises:
        SettingsError: If the file cannot be read, or a key or value is not what was expected.
    """
    text = None
    try:
        path.stat()
    except FileNotFoundError:
        if not missing_ok:
            raise SettingsError(
                f"{path} does not exist; run cluster-serving-init to make one, or name another with -c"
            ) from None
        text = "modelPath: model"
    except OSError as error:
        # For instance in a folder of another user: `Path.exists` would raise some of these, and hide others.
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    kind = with_all_keys()
    file = _checked_keys(yaml_file.read(path, text, warn, _sections()), warn)
    sources.warn_of_mistyped(kind, os.environ, warn)
    config = load(kind, [sources.environment(kind, os.environ), file], str(path))
    return config.located(path.absolute().parent)


def keys_of(path: Path) -> dict[str, Given]:
    """Return the keys of a file that need not have all that a job needs, and their values.

    Raises:
        SettingsError: As for `read`.
    """
    return _checked_keys(yaml_file.read(path, sections=_sections()), lambda _: None)


def values_of(given: Mapping[str, Given], folder: Path) -> dict[str, Any]:
    """Return the checked values of some keys, by the names of their attributes.

    Raises:
        SettingsError: If a value is not what was expected.
    """
    kind = with_all_keys()
    config = load(kind, [{**given, "modelPath": Given(str(folder), str(folder))}], str(folder))
    names = {field.alias or to_camel(name): name for name, field in kind.model_fields.items()}
    return {names[key]: getattr(config, names[key]) for key in given}


def _sections() -> set[str]:
    """Return the keys whose values hold further keys, such as `flink` with `flink.target`."""
    return {key.partition(".")[0] for key in keys(with_all_keys()) if "." in key}


def _checked_keys(entries: list[yaml_file.Entry], warn: Callable[[str], None]) -> dict[str, Given]:
    """Return the values by key; a key without a value keeps its default.

    Raises:
        SettingsError: If a key is unknown, is given twice, or asks for what this product does not do.
    """
    kind = with_all_keys()
    given: dict[str, Given] = {}
    for name, (value, place, written) in entries:
        key = name.lower()
        if key.partition(".")[0] == yaml_file.FRONT_END:
            continue
        if preferred := original_keys.preference(key, value):
            key, value = "prefer", preferred
        original = key in original_keys.WITHOUT_EFFECT
        if not original:
            inner = [known for known in keys(kind) if known.lower().startswith(f"{key}.")]
            if inner:
                raise SettingsError(f"{place}: {name} is {value!r}; expected a mapping with {', '.join(inner)}")
            nested = ", nor one of the original's" if "." in name else ""
            try:
                key = sources.key_of(
                    kind, key if preferred else name, f"{place}: {name} is not a key of this file{nested}", {}
                )
            except SettingsError:
                _refuse_front_end(name, place)
                raise
        if key in given:
            raise SettingsError(f"{place}: {name} is given a second time; first in {given[key].place}")
        if not original and value is not None and keys(kind)[key].annotation == tuple[str, ...]:
            # A name such as 559 or on is no number, and no truth value.
            value = value if written is None else written
        given[key] = Given(value, place)
        if original:
            only = original_keys.WITHOUT_EFFECT[key]
            if None not in (value, only) and value != only:
                remedy = "; for TLS, set redisUrl: rediss://host:port" if "secure" in key else ""
                raise SettingsError(f"{place}: {name} is {shown(key, FieldInfo(), value)}; expected {only}{remedy}")
            # The value changes nothing, so the start goes on.
            if value is not None and only is None:
                warn(f"{place}: {name} has no effect")
    return {key: entry for key, entry in given.items() if key in keys(kind) and entry.value is not None}


def _refuse_front_end(name: str, place: str) -> None:
    # Its packages need not be installed for a start.
    from cluster_serving.frontend.main import HttpOptions

    if option := {key.lower(): key for key in keys(HttpOptions)}.get(name.lower()):
        raise SettingsError(
            f"{place}: {name} is an option of the HTTP front end, not of the job; write it in the section "
            f"{yaml_file.FRONT_END}, as {yaml_file.FRONT_END}: {{{option}: …}}"
        ) from None


def template(values: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the text of a new `config.yaml`: every key with its meaning and default; `values` are set."""
    parts = [_HEADER]
    nested = {section: [heading] for section, heading in _SECTIONS.items()}
    for stage in stages.kinds():
        nested |= {section: [f"{comment}{section}:\n"] for section, comment in stage.headings.items()}
    # Those of stages and targets come last.
    kinds: tuple[type[Settings], ...] = (Config, *stages.kinds(), *targets.keys())
    known = dict(chain(*(keys(kind).items() for kind in kinds)))
    ordered = {key: known[key] for key in _FIRST} | known
    for number, (key, field) in enumerate(ordered.items()):
        if number == len(_FIRST):
            parts.append(_OTHERS)
        section, _, name = key.rpartition(".")
        comment = textwrap.fill(field.description or "", 118, initial_indent="# ", subsequent_indent="# ")
        text = f"{comment}\n# Expected: {expected(field)}.\n{_setting(name, field, values.get(key))}\n"
        if section:
            nested[section].append(textwrap.indent(text, "  "))
        else:
            parts.append(text)
    return "\n".join([*parts, *chain(*nested.values()), _FRONT_END])


def _setting(key: str, field: FieldInfo, value: Any = None) -> str:
    if field.is_required():
        return f"{key}: model"
    if value is not None:
        return f"{key}: {json.dumps(value)}"
    if field.default is None:
        return f"# {key}:"
    value = yaml.safe_dump(field.default, default_flow_style=True, width=1000).removesuffix("\n...\n").strip()
    return f"# {key}: {value}".replace("''", '""')
