"""A way from this machine to a service in Kubernetes."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
from contextlib import AbstractContextManager

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.targets.kubernetes.kubectl import Kubectl, reason

_FORWARDS = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
_TIMEOUT_S = 15.0


class PortForward(AbstractContextManager["PortForward"]):
    """`kubectl port-forward`, which ends with its pod and is then started again; inside of the cluster none is needed.

    Raises:
        LaunchError: From `url`, if the service has no pod, or the user may not reach it.
    """

    def __init__(self, kubectl: Kubectl, service: str, port: int) -> None:
        self._kubectl = kubectl
        self._service = service
        self._port = port
        self._process: subprocess.Popen[str] | None = None
        self._url = ""

    def __exit__(self, *exc: object) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None

    @property
    def url(self) -> str:
        """URL of the service as seen from here."""
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            return f"http://{self._service}.{self._kubectl.namespace}:{self._port}"
        if self._process is None or self._process.poll() is not None:
            self.__exit__()
            self._start()
        return self._url

    def _start(self) -> None:
        command = self._kubectl.command("port-forward", f"service/{self._service}", f":{self._port}")
        self._process = process = subprocess.Popen(  # noqa: S603 - the user's kubectl, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout and process.stderr  # noqa: S101 - for the type checker: both are pipes
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            line = process.stdout.readline() if selector.select(_TIMEOUT_S) else ""
        if found := _FORWARDS.search(line):
            self._url = f"http://127.0.0.1:{found[1]}"
            return
        process.kill()
        _, problem = process.communicate()
        self._process = None
        raise LaunchError(f"service {self._service} in {self._kubectl.where} cannot be reached: {reason(problem)}")
