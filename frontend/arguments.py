"""Sources of the options: the command line, then environment variables, then `config.yaml`, then defaults."""

import argparse
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from cluster_serving.frontend.options import HttpOptions
from cluster_serving.settings import original_keys, sources, yaml_file
from cluster_serving.settings.errors import SettingsError
from cluster_serving.settings.model import Given, Source, load

# Keys of a job that count here, in lower case, and the options that they set.
_JOB_KEYS = {"redisurl": "redisUrl", "jobname": "redisInputQueue", "flinkresturl": "flinkUiUrl"}
_JOB_VARIABLE = "CLUSTER_SERVING_REDIS_URL"

_EPILOG = f"""\
Options may also be environment variables, such as
{sources.variable_of(HttpOptions, "redisHost")}, or keys of the section `{yaml_file.FRONT_END}` of
config.yaml; of that file's own keys, redisUrl, jobName and flinkRestUrl count
too.

examples:
  cluster-serving-http
  cluster-serving-http --interface 0.0.0.0 --port 8080 --apiKeysFile keys
  cluster-serving-http --configPath config.yaml
  cluster-serving-http hash-key alice >> keys
"""


def parser() -> argparse.ArgumentParser:
    """Return a parser of the command line: every option as `--redisHost value` and as `--redis-host value`."""
    made = argparse.ArgumentParser(
        prog="cluster-serving-http",
        description="Serve jobs over HTTP. `cluster-serving-http hash-key` makes an API key.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    made.add_argument("-c", "--config-path", "--configPath", type=Path, help="a job's config.yaml to read options from")
    made.add_argument("--version", action="version", version=f"%(prog)s {version('cluster-serving')}")
    sources.add_options(made, HttpOptions)
    return made


def read(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> HttpOptions:
    """Return the options that a command line, without the command, environment variables and a file have.

    Raises:
        SettingsError: If an option is unknown or cannot be used.
        SystemExit: If the command line cannot be parsed, or asks for help.
    """
    parsed = vars(parser().parse_args(list(arguments)))
    path: Path | None = parsed.pop("config_path", None)
    job: dict[str, Given] = {}
    # The job's own variable counts for the front end too.
    if url := environment.get(_JOB_VARIABLE):
        job["redisUrl"] = Given(url, f"environment variable {_JOB_VARIABLE}")
    options = load(
        HttpOptions,
        [
            sources.command_line(parsed),
            sources.environment(HttpOptions, environment),
            job,
            *(_of_file(path) if path else ()),
        ],
    )
    if problem := options.problem():
        raise SettingsError(problem)
    return options


def _of_file(path: Path) -> tuple[Source, Source]:
    """Return the options of the file's section `http`, and those that the keys of the job imply."""
    section: dict[str, Given] = {}
    job: dict[str, Given] = {}
    for name, (value, place, _) in yaml_file.read(path):
        if value is None:
            continue
        if option := _JOB_KEYS.get(name.lower()):
            job.setdefault(option, Given(str(value), place))
        elif name.lower() == yaml_file.FRONT_END:
            raise SettingsError(f"{place}: {name} is not a mapping; expected options, such as port: 10020")
        elif name.startswith(f"{yaml_file.FRONT_END}."):
            option = name.partition(".")[2]
            key = sources.key_of(HttpOptions, option, f"{place}: {name} is not an option", original_keys.SPELLINGS)
            section[key] = Given(value, place)
    return section, job
