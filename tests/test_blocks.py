"""Each block of code on each page: what is not followed word by word by another test is at least what there is.

Keys of a configuration are read by the code that reads `config.yaml`, commands are parsed by their own parsers, paths
are those of `openapi.yaml`, and calls of Python fit the signatures.
"""

import ast
import importlib
import importlib.util
import inspect
import json
import re
import shlex
import textwrap
from importlib import metadata
from typing import NamedTuple

import jsonschema
import pytest
import typer
import yaml

from cluster_serving import Predictor, client
from cluster_serving.bench.load.main import app as bench
from cluster_serving.frontend import main as front_end
from cluster_serving.launcher import cli
from cluster_serving.launcher.config import file as config_file
from tests.support.fixtures.pages import DOCS, ROOT
from tests.support.programs.command_tree import loaded
from tests.support.programs.shell import shell_problem

PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]
LANGUAGES = {
    *("", "text"),  # What a program prints, and trees of files.
    *("sh", "bash", "python", "py", "yaml", "json", "toml"),
    *("javascript", "java", "html"),  # A browser, Node and Java run them: test_tutorials.py, test_how_to.py.
    "nginx",  # test_proxy.py
}
NOT_INSTALLED = {"bentoml", "litserve", "celery", "ray", "tasks", "openai", "tritonclient", "bigdl", "tensorboard"}
"""Packages of other servers and of clients, and modules of the same page."""

ORIGINAL_KEYS = {"docs/coming-from/analytics-zoo.md"}
"""Pages with keys of the original that have no effect, as they say."""

OBJECTS = {
    "requests": client.InputQueue,
    "queue": client.InputQueue,
    "results": client.OutputQueue,
    "predictor": Predictor,
}
"""Names that pages have for our objects, where the block does not make them."""

SCHEMA = json.loads((ROOT / "charts/cluster-serving/values.schema.json").read_text("utf8"))
PATHS = yaml.safe_load((ROOT / "frontend/api/openapi.yaml").read_text("utf8"))["paths"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf8"), re.MULTILINE))
EXTRAS = set(metadata.metadata("cluster-serving").get_all("Provides-Extra"))


class Block(NamedTuple):
    """A block of code on a page."""

    page: str
    language: str
    text: str


def _blocks():
    for page in PAGES:
        for _, language, text in re.findall(r"^( *)```(\w*)\n(.*?)^ *```$", page.read_text("utf8"), re.M | re.S):
            yield Block(str(page.relative_to(ROOT)), language, textwrap.dedent(text))


BLOCKS = list(_blocks())
HERE = [
    Block(block.page, "yaml", text)
    for block in BLOCKS
    for text in re.findall(r"^cat > \w+\.yaml <<END\n(.*?)^END$", block.text, re.M | re.S)
]
"""Files that a shell writes."""


def each(*languages, blocks=BLOCKS):
    found = [block for block in blocks if block.language in languages]
    return pytest.mark.parametrize("block", found, ids=[f"{block.page}:{block.text[:30]!r}" for block in found])


def test_every_language_is_read_by_a_test():
    assert {block.language for block in BLOCKS} == LANGUAGES


@each("yaml", blocks=BLOCKS + HERE)
def test_a_configuration_can_be_read(tmp_path, block):
    content = yaml.safe_load(block.text)
    if "apiVersion" in content:
        assert content["kind"] and content["metadata"]["name"] and content["spec"]
    elif content.keys() & {"jobs", "networkPolicy", "images"}:
        jsonschema.Draft7Validator(SCHEMA).validate(content)
    else:
        path = tmp_path / "config.yaml"
        path.write_text(block.text if "modelPath" in content else f"modelPath: model\n{block.text}", "utf8")
        warnings = []
        assert config_file.read(path, warnings.append).model_path
        assert warnings == [] or block.page in ORIGINAL_KEYS
        if "http" in content:
            front_end.read_options(["-c", str(path)])


@each("json")
def test_json_can_be_read(block):
    assert json.loads(block.text)


@each("toml")
def test_toml_can_be_read(block):
    assert pytest.importorskip("tomllib").loads(block.text)


# Of PyFlink's own, when it is imported.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@each("python", "py")
def test_a_program_imports_and_calls_what_there_is(block):
    nodes = list(ast.walk(ast.parse("\n".join(re.findall(r"^>>> (.*)$", block.text, re.M)) or block.text)))
    names = dict(pair for node in nodes for pair in imported(node))
    objects = OBJECTS | dict(pair for node in nodes for pair in made(node, names))
    for node in nodes:
        if isinstance(node, ast.Call):
            call(node, names, objects)


def imported(node):
    """Yield what a statement imports: names and things, as far as the packages are installed."""
    if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] not in NOT_INSTALLED:
        module = importlib.import_module(node.module)
        for alias in node.names:
            if not hasattr(module, alias.name):
                importlib.import_module(f"{node.module}.{alias.name}")
            yield alias.asname or alias.name, getattr(module, alias.name)
    elif isinstance(node, ast.Import):
        for package in {alias.name.partition(".")[0] for alias in node.names} - NOT_INSTALLED:
            assert importlib.util.find_spec(package), package


def made(node, names):
    """Yield names and classes of our objects that an assignment or a `with` makes."""
    pairs = [(node.targets[0], node.value)] if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.With | ast.AsyncWith):
        pairs = [(item.optional_vars, item.context_expr) for item in node.items]
    for target, value in pairs:
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            found = names.get(value.func.id)
            if inspect.isclass(found) and is_ours(found):
                yield target.id, found


def call(node, names, objects):
    """Fail if something of ours is called that is not there, or with arguments that it does not take."""
    name = getattr(node.func, "id", None)
    owner = objects.get(getattr(getattr(node.func, "value", None), "id", None))
    if owner:
        called = getattr(owner, node.func.attr)
    else:
        called = names.get(name) or inspect.getattr_static(objects.get(name), "__call__", None)
    if called and is_ours(called) and not any(isinstance(each, ast.Starred) for each in node.args):
        itself = [None] * bool(owner or name not in names)
        inspect.signature(called).bind(*itself, *node.args, **{each.arg: each.value for each in node.keywords})


def is_ours(thing):
    return getattr(thing, "__module__", "").startswith("cluster_serving")


@each("sh", "bash")
def test_a_shell_can_read_it(block):
    assert shell_problem(block.text) == ""


@pytest.fixture(scope="module")
def parsers():
    """By name, the parsers of our commands, as the entry points make them."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("init", "start", "stop", "restart", "shutdown", "cli", "umbrella"):
            patch.setattr(cli, "_run", lambda app, name=name: found.update({name: loaded(app)}))
            getattr(cli, name)()
    return found | {"bench": typer.main.get_command(bench)}


@each("sh", "bash")
def test_commands_have_the_options_that_they_are_given(parsers, block):
    for words in commands(block.text):
        check(words, parsers)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_within_the_text_have_the_options_that_they_name(parsers, page):
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf8"), flags=re.M | re.S)
    for code in re.findall(r"(?<!`)`(cluster-serving[- ][^`]*)`(?!`)", text):
        name, *words = re.findall(r"[^\s=]+", code)
        command = parsers.get(name.removeprefix("cluster-serving").lstrip("-") or "umbrella")
        while command and hasattr(command, "commands") and words and (command := command.commands.get(words.pop(0))):
            pass
        if command and command.name not in ("http", "bench"):
            options = {option for parameter in command.params for option in (*parameter.opts, "--help", "--version")}
            assert {word for word in words if word.startswith("--")} <= options, code


def commands(text):
    """Yield the words of each command of a script, without redirections and comments."""
    text = re.sub(r" <<END\n.*?^END$", "", text.replace("\\\n", " "), flags=re.M | re.S)
    lexer = shlex.shlex(re.sub(r"(?<=\s)#.*$", "", text, flags=re.M), posix=True, punctuation_chars="();|&<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    command: list[str] = []
    for word in [*lexer, ";"]:
        if not re.fullmatch(r"[();|&<>\n]+", word):
            command.append(word)
        elif set(word) & set("<>"):
            command.append(">")
        elif command:
            yield command[: command.index(">")] if ">" in command else command
            command = []


def check(words, parsers):
    """Fail if one of our commands, a target of make, an extra, or a module or program of ours is not there."""
    words = words[next((place for place, word in enumerate(words) if not re.match(r"\w+=", word)), len(words)) :]
    program, arguments = words[0].rpartition("/")[2] if words else "", words[1:]
    if re.match(r"cluster-serving(-\w+)?$", program) and "--version" not in arguments:
        name = program.removeprefix("cluster-serving").lstrip("-") or "umbrella"
        if name == "http":
            assert arguments[:1] == ["hash-key"] or front_end.read_options(arguments)
        else:
            parse(parsers[name], arguments)
    elif program == "make":
        assert {word for word in arguments if "=" not in word} <= TARGETS
    elif program == "pip":
        named = re.findall(r"(?:cluster-serving|^\.)\[([\w,]+)\]", "\n".join(arguments), re.M)
        assert {extra for extras in named for extra in extras.split(",")} <= EXTRAS
    elif program.startswith("python") and arguments[:1] == ["-m"] and arguments[1].startswith("cluster_serving"):
        assert importlib.util.find_spec(arguments[1])
    elif program.startswith("python") and arguments[0].startswith("examples/"):
        assert (ROOT / arguments[0]).is_file()


def parse(command, arguments):
    """Parse the arguments of a command, and of the command within it."""
    if hasattr(command, "commands"):
        parse(command.commands[arguments[0]], arguments[1:])
    else:
        command.make_context(command.name, list(arguments))


@each("sh", "bash")
def test_requests_go_to_paths_that_there_are(block):
    for words in commands(block.text):
        if words[0] == "curl":
            method = words[words.index("-X") + 1] if "-X" in words else "POST" if "-d" in words else "GET"
            for word in words[1:]:
                if found := re.match(r"(?:http://)?localhost:10020(/[^?]*)?", word):
                    assert method.lower() in _operations(found[1] or "/"), (method, word)
            if "-d" in words and "$" not in (body := words[words.index("-d") + 1]) and not body.startswith("@"):
                assert json.loads(body)


def _operations(path):
    """Return the methods of a path."""
    for known, operations in PATHS.items():
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/:]+", re.escape(known)), path):
            return operations
    return {}
