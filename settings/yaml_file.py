"""A job's `config.yaml`: its keys, each with the line that it is on, under their present names."""

import math
import re
from collections.abc import Callable, Collection
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from cluster_serving.settings import original_keys
from cluster_serving.settings.addresses import redacted
from cluster_serving.settings.errors import SettingsError
from cluster_serving.settings.model import Given

FRONT_END = "http"
"""Section of the file with the options of the HTTP front end."""

Entry = tuple[str, Given]
"""Key, as it is written in the file, and value; the key `port` in the section of the front end is `http.port`."""


def read(
    path: Path,
    text: str | None = None,
    warn: Callable[[str], None] = lambda _: None,
    sections: Collection[str] = frozenset(),
) -> list[Entry]:
    """Return the keys of a file and their values; nested keys of early versions get their present names.

    Args:
        path: The file.
        text: Content in place of that of the file, which is not read then.
        warn: Receives the present names of nested keys, and the names of those without effect.
        sections: Keys whose values hold further keys, beside those of early versions.

    Raises:
        SettingsError: If the file cannot be read, is not valid YAML, or does not hold keys and values.
    """
    try:
        text = path.read_text("utf8") if text is None else text
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{path} is not text in UTF-8: byte {error.start + 1} is {error.object[error.start]:#x}"
        ) from None
    try:
        return _Reader(path, text, original_keys.SECTIONS.union(sections)).entries(warn)
    except yaml.MarkedYAMLError as error:
        mark, begun = error.problem_mark, error.context_mark
        # What is open may have begun far above.
        where = f", {error.context} of line {begun.line + 1}" if begun and mark and begun.line < mark.line - 1 else ""
        line = mark.line + 1 if mark else "?"
        raise SettingsError(f"{path}, line {line}: not valid YAML: {error.problem}{where}") from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SettingsError(f"{path}, line {line}: not valid YAML: a character of code {error.character}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise SettingsError(f"{path}: not valid YAML: {error}") from None


class _Loader(yaml.SafeLoader):
    """YAML whose numbers may be written as 1e-3 and 5e+07, as Helm writes them; YAML 1.1 asks for a dot and a sign."""

    def number_or_text(self, node: yaml.ScalarNode) -> float | str:
        value = self.construct_yaml_float(node)
        if "e" not in node.value.lower():
            return value
        if math.isinf(value):
            # Such as 12e4567 of a hash.
            return str(node.value)
        return int(Decimal(node.value.replace("_", ""))) if value.is_integer() else value


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.number_or_text)


class _Reader:
    def __init__(self, path: Path, text: str, sections: Collection[str]) -> None:
        self._path = path
        self._loader = _Loader(text)
        self._sections = sections

    def entries(self, warn: Callable[[str], None]) -> list[Entry]:
        entries: list[Entry] = []
        renamed: list[str] = []
        names: set[str] = set()
        spark = None
        for name, node, place in self._pairs(self._loader.get_single_node()):
            if name == original_keys.SPARK:
                spark = place
            if name.lower() == FRONT_END and isinstance(node, yaml.MappingNode):
                pairs = self._pairs(node)
                entries += [(f"{FRONT_END}.{key}", Given(self._value(inner), line)) for key, inner, line in pairs]
            elif name not in self._sections or (isinstance(node, yaml.ScalarNode) and node.value):
                entries.append((name, Given(self._value(node), place, _written(node))))
            elif isinstance(node, yaml.MappingNode):
                for key, inner, line in self._pairs(node):
                    names.add(f"{name}.{key}")
                    self._translate(f"{name}.{key}", Given(self._value(inner), line), entries, renamed, warn)
        if spark:
            known = {key.lower() for key, given in entries if given.value}
            implied = {key: value for key, value in original_keys.implied(names).items() if key.lower() not in known}
            entries = [(key, given) for key, given in entries if key not in implied]
            entries += [(key, Given(value, spark)) for key, value in implied.items()]
            renamed += [f"{key}: {value} (implied by {original_keys.SPARK})" for key, value in implied.items()]
        if renamed:
            warn(f"{self._path} has nested keys of an early version; write instead: {', '.join(renamed)}")
        return entries

    def _translate(
        self, name: str, nested: Given, entries: list[Entry], renamed: list[str], warn: Callable[[str], None]
    ) -> None:
        try:
            present = original_keys.translate(name, nested.value)
        except KeyError:
            # Left to the check of the keys, as the front end reads three of them alone.
            entries.append((name, nested))
            return
        except ValueError as error:
            raise SettingsError(f"{nested.place}: {name}: {error}") from None
        if present is not None:
            key, value = present
            entries.append((key, Given(value, nested.place)))
            written = redacted(value) if key == "redisUrl" and isinstance(value, str) else value
            renamed.append(f"{key}: {written} (was {name})")
        elif nested.value is not None and name != "secure.secure_enabled":
            warn(f"{nested.place}: {name} has no effect")

    def _pairs(self, node: yaml.Node | None) -> list[tuple[str, yaml.Node, str]]:
        if node is None:
            return []
        if not isinstance(node, yaml.MappingNode):
            raise SettingsError(f"{self._place(node)}: expected keys and values, such as modelPath: model")
        return [(str(key.value), value, self._place(key)) for key, value in node.value]

    def _place(self, node: yaml.Node) -> str:
        return f"{self._path}, line {node.start_mark.line + 1}"

    def _value(self, node: yaml.Node) -> Any:
        return self._loader.construct_object(node, deep=True)


def _written(node: yaml.Node) -> str | list[str] | None:
    """Return a scalar, or a list of scalars, as it is written in the file."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    if isinstance(node, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in node.value):
        return [str(item.value) for item in node.value]
    return None
