"""The workflows of GitHub: they run the targets that people run, with pinned actions and few rights."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.fixtures.commands import BIN

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf8"), re.MULTILINE))


def jobs(workflow):
    return yaml.safe_load(workflow.read_text("utf8"))["jobs"].values()


def steps(workflow):
    return [step for job in jobs(workflow) for step in job["steps"]]


def test_there_is_one_for_changes_and_one_for_releases():
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_each_step_is_one_target_or_one_pinned_action(workflow):
    for step in steps(workflow):
        if command := step.get("run"):
            make, target = command.split(" ")
            assert make == "make" and target in TARGETS
        else:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_only_what_publishes_may_do_more_than_read(workflow):
    assert yaml.safe_load(workflow.read_text("utf8"))["permissions"] == {"contents": "read"}
    more = [job["permissions"] for job in jobs(workflow) if "permissions" in job]
    assert more == ([{"id-token": "write"}] if workflow.name == "release.yml" else [])
    checkouts = [step for step in steps(workflow) if "checkout" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_they_are_well_formed():
    check = [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS]
    ran = subprocess.run(check, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
