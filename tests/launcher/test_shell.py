"""How the commands behave in a shell: help with examples, completion, colours, and pipes."""

import os
import pty
import re
import shlex
import subprocess

import pytest
import typer

from cluster_serving.bench.load import main as bench
from cluster_serving.frontend import arguments
from cluster_serving.launcher import cli
from tests.support.fixtures.commands import BIN
from tests.support.programs.command_tree import loaded

ESCAPE = "\x1b"
PROGRAMS = ("init", "start", "stop", "restart", "shutdown", "umbrella", "cli")


@pytest.fixture
def root(request, monkeypatch):
    """One of our programs, as Typer has it."""
    made = []
    monkeypatch.setattr(cli, "_run", made.append)
    getattr(cli, request.param)()
    return loaded(made[0])


def commands(command, *path):
    """Yield the command and those below it, each with its words."""
    yield path, command
    for name, sub in getattr(command, "commands", {}).items():
        yield from commands(sub, *path, name)


def examples(text):
    """The lines of the help that are examples."""
    return re.findall(r"^ +(cluster-serving.*)$", re.split("[Ee]xamples:", text)[1], re.MULTILINE)


def parse(command, words):
    """Parse words as a shell would hand them over; a mistake raises an error of Typer."""
    context = command.make_context(command.name, words)
    if hasattr(command, "resolve_command"):
        _, sub, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        parse(sub, rest)


@pytest.mark.parametrize("root", PROGRAMS, indirect=True)
def test_the_help_of_each_command_has_examples_that_can_be_typed(root):
    for path, command in commands(root):
        if path[-1:] in (("http",), ("bench",)):
            continue
        typed = examples(command.epilog)
        assert typed, path
        for line in typed:
            program, *words = shlex.split(line)
            assert program.startswith("cluster-serving") and words[: len(path)] == list(path)
            parse(root, words)


def test_so_has_the_help_of_the_load_generator_and_of_the_front_end():
    load_generator = typer.main.get_command(bench.app)
    for line in examples(load_generator.epilog):
        parse(load_generator, shlex.split(line)[1:])
    for line in examples(arguments.parser().epilog):
        if "hash-key" not in line:
            arguments.read(shlex.split(line)[1:], {})
    assert len(examples(load_generator.epilog)) == 3 and len(examples(arguments.parser().epilog)) == 4


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"_CLUSTER_SERVING_CLI_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "cluster-serving-cli st"}, "status"),
        (
            {
                "_CLUSTER_SERVING_CLI_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_ARGS": "cluster-serving-cli dead re",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            },
            "requeue",
        ),
    ],
    ids=["zsh", "fish"],
)
def test_a_shell_completes_the_names_of_commands(variables, expected):
    ran = subprocess.run([BIN / "cluster-serving-cli"], env=os.environ | variables, capture_output=True, text=True)
    assert expected in ran.stdout
    assert "promote" not in ran.stdout


def test_bash_completes_commands_and_options(tmp_path):
    script = """
eval "$(cluster-serving --show-completion bash)"
complete -p cluster-serving
COMP_WORDS=(cluster-serving sh) COMP_CWORD=1
_cluster_serving_completion cluster-serving
echo "${COMPREPLY[@]}"
COMP_WORDS=(cluster-serving update --can) COMP_CWORD=2
_cluster_serving_completion cluster-serving
echo "${COMPREPLY[@]}"
"""
    path = f"{BIN}:{os.environ['PATH']}"
    ran = subprocess.run(["bash", "-c", script], env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert ran.stdout.splitlines()[1:] == ["shutdown", "--canary"], ran.stderr


def on_a_terminal(words, folder, **variables):
    """What a command prints on a terminal."""
    person, terminal = pty.openpty()
    subprocess.run(words, cwd=folder, stdout=terminal, stderr=terminal, env=os.environ | variables, check=False)
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(person, 1 << 16):
            shown += piece
    except OSError:
        # Linux reports the end of a terminal as an error.
        pass
    os.close(person)
    return shown.decode()


MISTAKE = [BIN / "cluster-serving-start", "-c", "missing.yaml"]


def test_no_color_is_obeyed(tmp_path):
    variables = {"TERM": "xterm-256color", "CLUSTER_SERVING_HOME": str(tmp_path / "state")}
    assert ESCAPE + "[31m" in on_a_terminal(MISTAKE, tmp_path, **variables)
    assert ESCAPE not in on_a_terminal(MISTAKE, tmp_path, **variables, NO_COLOR="1")


def test_a_pipe_gets_neither_colours_nor_lines_that_are_drawn_again(tmp_path):
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(tmp_path / "state"), "TERM": "xterm-256color"}
    (tmp_path / "config.yaml").write_text("modelPath: model\nredisUrl: localhost:1\nflinkRestUrl: localhost:1\n")
    for words in (
        MISTAKE,
        ["cluster-serving-cli", "list"],
        ["cluster-serving-cli", "doctor"],
        ["cluster-serving", "--help"],
    ):
        ran = subprocess.run(
            [BIN / words[0], *words[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert ran.stdout + ran.stderr != ""
        assert not set(ran.stdout + ran.stderr) & {ESCAPE, "\r", "\b"}
