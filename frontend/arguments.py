"""Where options come from: the command line, then environment variables, then `config.yaml`, then defaults."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cluster_serving.frontend.options import HttpOptions

PREFIX = "CLUSTER_SERVING_HTTP_"
"""Of the environment variables: CLUSTER_SERVING_HTTP_REDIS_URL is redisUrl."""

SECTION = "http"
"""Key of a job's `config.yaml` that holds options of the front end."""

_NAMES = {(field.alias or name): name for name, field in HttpOptions.model_fields.items()}
_CANONICAL = {alias.lower(): alias for alias in _NAMES} | {
    # As the spelling of the original invites.
    "redistruststorepath": "redissTrustStorePath",
    "redistruststoretoken": "redissTrustStoreToken",
}


# Keys of a job that count here: in a flat file, in a nested one of the original's early versions, and the option.
_SHARED = (
    ("redisurl", ("data", "src"), "redisUrl"),
    ("jobname", ("model", "name"), "redisInputQueue"),
    ("flinkresturl", ("flink", "rest"), "flinkUiUrl"),
)


class OptionError(Exception):
    """An option cannot be used; the message names it, where it is from, and what was expected."""


def parser() -> argparse.ArgumentParser:
    """Parser of the command line: every option as `--redisHost value` and as `--redis-host value`."""
    made = argparse.ArgumentParser(
        prog="cluster-serving-http",
        description="Serve jobs over HTTP. `cluster-serving-http hash-key` makes an API key.",
        epilog=f"Options may also be environment variables, such as {PREFIX}REDIS_HOST, or keys of the section "
        f"`{SECTION}` of config.yaml; of that file's own keys, redisUrl, jobName and flinkRestUrl count too.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    made.add_argument("-c", "--config-path", "--configPath", type=Path, help="a job's config.yaml to read options from")
    for alias, name in _NAMES.items():
        field = HttpOptions.model_fields[name]
        flags = list(dict.fromkeys((f"--{alias}", f"--{name.replace('_', '-')}")))
        switch: dict[str, Any] = {"nargs": "?", "const": "true"} if isinstance(field.default, bool) else {}
        shown = f"{field.description} Default: {field.default}." if field.default else f"{field.description}"
        made.add_argument(*flags, dest=alias, metavar="VALUE", help=shown.replace("%", "%%"), **switch)
    return made


def read(arguments: Sequence[str], environment: Mapping[str, str]) -> HttpOptions:
    """Collect the options.

    Args:
        arguments: The command line, without the command.
        environment: Environment variables.

    Raises:
        OptionError: One is unknown or cannot be used.
        SystemExit: The command line cannot be parsed, or asks for help.
    """
    given = vars(parser().parse_args(list(arguments)))
    path: Path | None = given.pop("config_path", None)
    values: dict[str, tuple[Any, str]] = {}
    if path is not None:
        values |= _from_file(path)
    # What the commands of the job take from the environment counts for the front end too.
    if shared := environment.get("CLUSTER_SERVING_REDIS_URL"):
        values["redisUrl"] = (shared, "environment variable CLUSTER_SERVING_REDIS_URL")
    variables = {alias: PREFIX + name.upper() for alias, name in _NAMES.items()}
    _override(
        values,
        {
            alias: (environment[variable], f"environment variable {variable}")
            for alias, variable in variables.items()
            if variable in environment
        },
    )
    _override(values, {alias: (value, f"--{alias}") for alias, value in given.items()})
    return checked(values)


def checked(values: Mapping[str, tuple[Any, str]]) -> HttpOptions:
    """Options from values and where each is from.

    Raises:
        OptionError: One cannot be used.
    """
    try:
        options = HttpOptions.model_validate({alias: value for alias, (value, _) in values.items()})
    except ValidationError as error:
        lines = []
        for detail in error.errors(include_input=False, include_url=False):
            alias = str(detail["loc"][0])
            origin = values[alias][1] if alias in values else alias
            lines.append(f"{origin}: {detail['msg'][0].lower()}{detail['msg'][1:]}")
        raise OptionError("\n".join(dict.fromkeys(lines))) from None
    if problem := options.problem():
        raise OptionError(problem)
    return options


def _override(values: dict[str, tuple[Any, str]], later: Mapping[str, tuple[Any, str]]) -> None:
    """Let what comes later win, and its redisHost or redisPort over a redisUrl that came before."""
    if later.keys() & {"redisHost", "redisPort"} and "redisUrl" not in later:
        values.pop("redisUrl", None)
    values.update(later)


def _from_file(path: Path) -> dict[str, tuple[Any, str]]:
    try:
        content = yaml.safe_load(path.read_text("utf8"))
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise OptionError(f"{path} is not valid YAML: {error}") from None
    if content is not None and not isinstance(content, dict):
        raise OptionError(f"{path}: expected keys and values")
    keys = {str(key).lower(): value for key, value in (content or {}).items() if value is not None}
    values: dict[str, tuple[Any, str]] = {}
    for key, (section, inner), shared in _SHARED:
        nested = keys.get(section)
        found = keys.get(key) or (nested.get(inner) if isinstance(nested, dict) else None)
        if found is not None:
            values[shared] = (str(found), f"{path}: {key if key in keys else f'{section}.{inner}'}")
    options = keys.get(SECTION, {})
    if not isinstance(options, dict):
        raise OptionError(f"{path}: {SECTION} is not a mapping; expected options, such as port: 10020")
    given: dict[str, tuple[Any, str]] = {}
    for key, value in options.items():
        alias = _CANONICAL.get(str(key).lower())
        if alias is None:
            close = difflib.get_close_matches(str(key).lower(), _CANONICAL, n=1)
            hint = f"; did you mean {_CANONICAL[close[0]]}?" if close else ""
            raise OptionError(f"{path}: {SECTION}.{key} is not an option{hint}")
        if value is not None:
            given[alias] = (value, f"{path}: {SECTION}.{alias}")
    _override(values, given)
    return values
