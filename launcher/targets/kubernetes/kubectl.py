"""The commands of `kubectl`: the client of Kubernetes that its users have, with their contexts and their logins."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster_serving.launcher.errors import LaunchError

Resource = Mapping[str, Any]
"""An object of Kubernetes, as its API has it."""

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_REQUEST = "--request-timeout=15s"


class Kubectl:
    """One namespace of one cluster.

    Attributes:
        context: Context of the user's configuration; empty for the current one.
        namespace: Namespace of everything that is read and written.

    Raises:
        LaunchError: From every method, if `kubectl` is not installed or refuses; the message has its reason.
    """

    def __init__(self, context: str = "", namespace: str = "") -> None:
        self.context = context
        self.namespace = namespace
        if not namespace:
            self.namespace = self.run("config", "view", "--minify", "-o", "jsonpath={..namespace}").strip() or _own()

    @property
    def where(self) -> str:
        """The place, for messages."""
        return f"Kubernetes (namespace {self.namespace})"

    def command(self, *arguments: str) -> list[str]:
        """Return the command line for this context and namespace."""
        program = shutil.which("kubectl")
        if program is None:
            raise LaunchError("kubectl is not on PATH; install it, as flink.target names Kubernetes")
        chosen = {"--context": self.context, "--namespace": self.namespace}
        return [program, *(word for pair in chosen.items() if pair[1] for word in pair), *arguments]

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        """Run a command, and return its output."""
        try:
            ran = subprocess.run(  # noqa: S603 - the user's kubectl, no shell
                self.command(*arguments), input=stdin, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise LaunchError(f"kubectl {arguments[0]} did not end within {timeout:.0f} s") from None
        if ran.returncode:
            raise LaunchError(f"Kubernetes: {reason(ran.stderr)}")
        return ran.stdout

    def labelled(self, kinds: str, selector: str) -> list[Resource]:
        """Return the resources of some kinds, such as `deployments,pods`, that have the labels of a selector."""
        return list(json.loads(self.run("get", kinds, "-l", selector, "-o", "json", _REQUEST))["items"])

    def get(self, kind: str, name: str) -> Resource | None:
        """Return one resource; None if it does not exist."""
        found = self.run("get", kind, name, "-o", "json", "--ignore-not-found", _REQUEST)
        return dict(json.loads(found)) if found.strip() else None

    def events(self, name: str) -> list[Resource]:
        """Return the events of one resource, the latest last."""
        chosen = f"involvedObject.name={name}"
        return list(json.loads(self.run("get", "events", "--field-selector", chosen, "-o", "json", _REQUEST))["items"])

    def create(self, resource: Resource) -> None:
        """Create a resource; its content is in no command line."""
        self.run("create", "-f", "-", _REQUEST, stdin=json.dumps(resource))

    def delete(self, kinds: str, selector: str) -> None:
        """Delete the resources of some kinds with the labels of a selector, without waiting until they are gone."""
        self.run("delete", kinds, "-l", selector, "--wait=false", "--ignore-not-found", _REQUEST)


def reason(output: str) -> str:
    """Return what `kubectl` says in the end, in one line."""
    lines = [line for line in output.splitlines() if line.strip()] or ["kubectl failed without a message"]
    return lines[-1].removeprefix("error: ").removeprefix("Error from server ")


def _own() -> str:
    return _POD_NAMESPACE.read_text("utf8").strip() if _POD_NAMESPACE.exists() else "default"
