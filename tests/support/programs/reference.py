"""Write what docs/reference/ has of the code, and nobody writes twice: `make reference`.

Each page keeps its own text; what is between two markers comes from the code.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr

from cluster_serving import Predictor, client
from cluster_serving.bench.load.main import app as bench
from cluster_serving.frontend import errors
from cluster_serving.frontend.api import docs
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server.metrics import Metrics
from cluster_serving.launcher import cli
from cluster_serving.launcher.commands import COMMANDS
from cluster_serving.launcher.config import stages, targets
from cluster_serving.launcher.config.model import Config
from cluster_serving.protocol.figures import metrics
from cluster_serving.settings.model import Settings, expected, keys
from tests.support.programs.command_tree import loaded

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "reference"
MARKER = "<!-- {name}: {place} -->"

_CLIENT = ("InputQueue", "OutputQueue", "AsyncInputQueue", "AsyncOutputQueue", "Result", "Restarted", "Image")
_PYTHON = (*(getattr(client, name) for name in (*_CLIENT, "SparseTensor")), Predictor)
_LISTS = ("Args", "Attributes", "Raises")
_WIDTH = 88


def table(heads: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; `heads` has the names of the columns, separated by `|`."""
    lines = [heads.split("|"), ["---"] * (heads.count("|") + 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text(words: str) -> str:
    """Return the text of a docstring or a message as Markdown on one line; names of pages become links."""
    parts = " ".join(words.split()).split("`")
    parts[::2] = map(_prose, parts[::2])
    return "`".join(parts).replace("|", "\\|")


def _prose(words: str) -> str:
    words = re.sub(r"([*<])", r"\\\1", words)
    return re.sub(r"docs/([\w/-]+\.md)", lambda found: f"[{_title(found[1])}](../{found[1]})", words)


def _title(page: str) -> str:
    return (FOLDER.parent / page).read_text("utf8").partition("\n")[0].removeprefix("# ")


def code(value: object) -> str:
    """Return a value as YAML has it, in code; nothing for none and for an empty one."""
    if value is None or value in ("", (), {}) or isinstance(value, SecretStr):
        return ""
    if not isinstance(value, str):
        plain = list(value) if isinstance(value, tuple) else value
        value = yaml.safe_dump(plain, default_flow_style=True, width=1000).removesuffix("\n...\n").strip()
    return f"`{value}`"


def of_commands() -> str:
    """Return all commands with their arguments and options."""
    apps = {"cluster-serving": cli._group("cluster-serving", COMMANDS), "cluster-serving bench": bench}
    return "\n\n".join(chain.from_iterable(_commands(name, loaded(app)) for name, app in apps.items()))


def _commands(name: str, command: Any) -> Iterator[str]:
    if hasattr(command, "commands"):
        for word, inner in command.commands.items():
            yield from _commands(f"{name} {word}", inner)
        return
    yield f"## `{name}`"
    yield from (text(part) for part in (command.help or "").split("\n\n"))
    if shown := [each for each in command.params if not each.hidden]:
        yield table("argument or option|default|meaning", map(_parameter, shown))


def _parameter(each: Any) -> tuple[str, str, str]:
    names = each.opts if each.param_type_name == "option" else [each.metavar or each.name.upper()]
    default = "" if each.default in (None, False) else code(str(each.default))
    return ", ".join(f"`{name}`" for name in names), default, text(each.help or "")


def of_config() -> str:
    """Return the keys of config.yaml."""
    kinds = (Config, *stages.kinds(), *targets.keys())
    return table("key|default|meaning", chain.from_iterable(map(_keys, kinds)))


def _keys(kind: type[Settings]) -> Iterator[Sequence[str]]:
    for key, field in keys(kind).items():
        default = "required" if field.is_required() else code(field.default)
        words = f" Expected: {expected(field)}." if expected(field) else ""
        yield f"`{key}`", default, text(f"{field.description}{words}")


def of_options() -> str:
    """Return the options of the front end."""
    return table("option|default|meaning", _keys(HttpOptions))


def of_errors() -> str:
    """Return the codes of errors."""
    return table(
        "code|HTTP|gRPC|Python|meaning",
        (
            (f"`{name}`", str(each.http_status), each.grpc_status, f"`{each.__name__}`", _meaning(each))
            for name, each in errors.ERRORS.items()
        ),
    )


def _meaning(kind: type) -> str:
    return text((kind.__doc__ or "").partition("Attributes:")[0])


def of_front_end() -> str:
    """Return the metrics of the front end."""
    rows = []
    for each in Metrics()._registry._collector_to_names:
        suffix = "_total" if each._type == "counter" else ""
        labels = f"{{{','.join(each._labelnames)}}}" if each._labelnames else ""
        rows.append((f"`{each._name}{suffix}{labels}`", each._type, text(each._documentation)))
    return table("metric|type|meaning", rows)


def of_paths() -> str:
    """Return the paths of the HTTP API, by the sections of its document."""
    document = docs.document(keys=True)
    parts = []
    for tag in document["tags"]:
        found = (_operations(document, path, item, tag["name"]) for path, item in document["paths"].items())
        rows = list(chain.from_iterable(found))
        parts += [f"## {tag['description'].rstrip('.')}", table("path|does|parameters", rows)]
    return "\n\n".join(parts)


def _operations(document: Any, path: str, item: Any, tag: str) -> Iterator[Sequence[str]]:
    first: dict[str, tuple[str, Any]] = {}  # The welcome at / answers every method alike.
    for method, operation in item.items():
        if tag in operation["tags"]:
            first.setdefault(operation["summary"], (method, operation))
    for summary, (method, operation) in first.items():
        named = [_resolved(document, each) for each in operation.get("parameters", [])]
        names = ", ".join(f"`{each['name']}`" for each in named if each["in"] != "path")
        yield f"`{method.upper()} {path}`", text(summary), names


def _resolved(document: Any, each: Any) -> Any:
    for part in each["$ref"].split("/")[1:] if "$ref" in each else ():
        document = document[part]
    return document if "$ref" in each else each


def of_python() -> str:
    """Return the classes that programs import, with what their docstrings say."""
    return "\n\n".join(chain.from_iterable(map(_class, _PYTHON)))


def _class(kind: type) -> Iterator[str]:
    module = "cluster_serving" if kind is Predictor else "cluster_serving.client"
    yield f"## `{kind.__name__}`"
    yield _block(f"from {module} import {kind.__name__}\n\n{_signature(kind.__name__, _constructor(kind))}")
    yield from _docstring(kind.__doc__ or "")
    for name in _public(kind):
        member = inspect.getattr_static(kind, name)
        if not member.__doc__:
            continue
        yield f"### `{kind.__name__}.{name}`"
        if not isinstance(member, property):
            yield _block(_signature("predictor" if name == "__call__" else name, getattr(kind, name)))
        yield from _docstring(inspect.getdoc(member) or "")


def _public(kind: type) -> Iterator[str]:
    """Yield the names of properties and methods of our classes, each once."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("cluster_serving")]
    for name in dict.fromkeys(chain.from_iterable(map(vars, ours))):
        member = inspect.getattr_static(kind, name)
        is_ours = isinstance(member, (property, classmethod)) or inspect.isfunction(member)
        if is_ours and (name == "__call__" or not name.startswith("_")):
            yield name


def _constructor(kind: type) -> Callable[..., Any] | None:
    """Return the constructor that names its arguments; those of subclasses may pass them on."""
    made = (vars(base).get("__init__") for base in kind.__mro__ if base.__module__.startswith("cluster_serving"))
    return next((each for each in made if each and len(_named(each)) > 0), None)


def _named(function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]


class _Annotation(str):
    """An annotation, which a signature shows without quotes."""

    __repr__ = str.__str__


def _signature(name: str, function: Callable[..., Any] | None) -> str:
    if function is None:
        return f"{name}()"
    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=_plain(each.annotation))
        for each in signature.parameters.values()
        if each.name != "self"
    ]
    shown = signature.replace(parameters=parameters, return_annotation=_plain(signature.return_annotation))
    begin = "await " if inspect.iscoroutinefunction(function) else ""
    return _folded(f"{begin}{name}{shown}".removesuffix(" -> None"))


def _folded(call: str) -> str:
    """Return a long call with an argument on each line."""
    if len(call) <= _WIDTH:
        return call
    name, _, rest = call.partition("(")
    given, _, end = rest.rpartition(")")
    return f"{name}(\n    " + re.sub(r", (?![^\[]*\])", ",\n    ", given) + f",\n){end}"


def _plain(annotation: object) -> object:
    return _Annotation(annotation) if isinstance(annotation, str) else annotation


def _block(program: str) -> str:
    return f"```text\n{program}\n```"


def _docstring(words: str) -> Iterator[str]:
    """Return the parts of a docstring in Google's style as Markdown."""
    for part in re.split(r"\n\n(?! )", inspect.cleandoc(words)):
        head, _, body = part.partition(":\n")
        if head in _LISTS:
            items = re.split(r"\n(?=    \S)", "\n" + body.rstrip())[1:]
            named = (item.strip().partition(":") for item in items)
            yield f"**{head}**\n\n" + "\n".join(f"- `{name}`: {text(rest)}" for name, _, rest in named)
        elif head in ("Returns", "Yields"):
            yield f"**{head}** {text(body)}"
        elif head == "Example":
            yield f"```python\n{inspect.cleandoc(body)}\n```"
        else:
            yield text(part)


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "commands": ("commands.md", of_commands),
    "keys": ("config.md", of_config),
    "options": ("http-options.md", of_options),
    "classes": ("python.md", of_python),
    "paths": ("http-paths.md", of_paths),
    "errors": ("errors.md", of_errors),
    "metrics of a job": ("metrics.md", metrics.table),
    "metrics of the front end": ("metrics.md", of_front_end),
}
"""Name in the markers → page, and the function that makes the part."""

PAGES = tuple(dict.fromkeys(page for page, _ in PARTS.values()))


def written(page: str) -> str:
    """Return the text of a page as it should be.

    Raises:
        ValueError: If the page lacks a marker.
    """
    now = (FOLDER / page).read_text("utf8")
    for name, (where, make) in PARTS.items():
        if where == page:
            begin, end = (MARKER.format(name=name, place=place) for place in ("begin", "end"))
            if begin not in now or end not in now:
                raise ValueError(f"docs/reference/{page} has no lines {begin} and {end}")
            head, _, rest = now.partition(begin)
            now = f"{head}{begin}\n\n{make()}\n\n{end}{rest.partition(end)[2]}"
    return now


def main() -> None:
    """Write all pages."""
    for page in PAGES:
        (FOLDER / page).write_text(written(page), "utf8")
        print(f"Wrote docs/reference/{page}")


if __name__ == "__main__":
    main()
