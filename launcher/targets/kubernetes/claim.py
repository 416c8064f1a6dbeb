"""A volume in Kubernetes with what jobs bring along: archives, unpacked once under names of their content."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.process import wait_until
from cluster_serving.launcher.targets.kubernetes import pods
from cluster_serving.launcher.targets.kubernetes.kubectl import Kubectl, reason
from cluster_serving.launcher.targets.kubernetes.pod_templates import CONTAINER, VOLUME_FOLDER

_CHUNK = 1 << 20
# The newer protocol ends a connection whose other side, a slow disk, takes nothing for a while.
_STREAMING = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false"}
_SHOWN_EVERY = 5.0
_KEPT = 4
"""Folders of a kind that stay although no job uses them, the latest used."""

# Unpacked beside, so that a folder is complete once it has its name. The name's time is that of its last use.
_UNPACK = """
set -e
cd {root}
rm -rf {unfinished}
trap 'rm -rf {unfinished}' EXIT
mkdir {unfinished}
tar --extract --no-same-owner {gzip} --file - --directory {unfinished}
chmod -R u+rwX,go+rX {unfinished}
[ -d {name} ] || mv -T {unfinished} {name}
"""
_PRUNE = """
cd {root}
touch {used}
for kind in environment packages model; do
    ls -dt "$kind"-* 2> /dev/null | tail -n +{first} | while read -r folder; do
        case " {kept} " in *" $folder "*) ;; *) rm -rf "$folder" ;; esac
    done
done
# What another user has copied may stay.
true
"""


def name_of(archive: Path) -> str:
    """Return the name of the folder that an archive is unpacked to."""
    return archive.name.partition(".")[0]


class Claim:
    """A PersistentVolumeClaim, and the pod through which the launcher writes to it.

    Raises:
        LaunchError: From every method, if the pod does not start or the volume cannot be written.
    """

    def __init__(self, kubectl: Kubectl, name: str, pod: str, timeout: float) -> None:
        self._kubectl = kubectl
        self._name = name
        self._pod = pod
        self._timeout = timeout

    @contextmanager
    def mounted(self, image: str, labels: Mapping[str, str], template: Mapping[str, Any]) -> Iterator[None]:
        """Run a pod that has the volume; `template` has the user's further overrides for pods of the job."""
        self._kubectl.create(self._resource(image, labels, template))
        try:
            self._wait()
            yield
        finally:
            self._kubectl.run("delete", "pod", self._pod, "--wait=false", "--grace-period=0", "--ignore-not-found")

    def put(self, archive: Path) -> None:
        """Unpack an archive on the volume, if the volume does not have it."""
        name = name_of(archive)
        if self._shell(f"[ -d {VOLUME_FOLDER}/{name} ] && echo there || true").strip() == "there":
            say(f"Volume {self._name} has {name}")
            return
        script = _UNPACK.format(
            root=VOLUME_FOLDER,
            unfinished=shlex.quote(f".{name}.{self._pod}"),
            name=name,
            gzip="--gzip" if archive.suffix == ".gz" else "",
        )
        self._stream(archive, script)

    def prune(self, used: set[str], kept: set[str]) -> None:
        """Remove the folders that no job uses, but for the latest; `used` are those of this job."""
        words = [shlex.quote(name) for name in sorted(used)]
        self._shell(
            _PRUNE.format(root=VOLUME_FOLDER, used=" ".join(words) or ".", first=_KEPT + 1, kept=" ".join(used | kept))
        )

    def _stream(self, archive: Path, script: str) -> None:
        size, sent, shown = archive.stat().st_size, 0, time.monotonic()
        say(f"Copying {name_of(archive)} to volume {self._name}, {size / 1e6:.0f} MB")
        command = self._kubectl.command("exec", "-i", self._pod, "-c", CONTAINER, "--", "sh", "-c", script)
        with subprocess.Popen(  # noqa: S603 - the user's kubectl, no shell on this machine
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | _STREAMING,
        ) as process:
            assert process.stdin and process.stderr  # noqa: S101 - for the type checker: both are pipes
            try:
                with archive.open("rb") as file:
                    while chunk := file.read(_CHUNK):
                        process.stdin.write(chunk)
                        sent += len(chunk)
                        if time.monotonic() - shown > _SHOWN_EVERY:
                            shown = time.monotonic()
                            say(f"Copying {name_of(archive)}: {sent / 1e6:.0f} of {size / 1e6:.0f} MB")
                process.stdin.close()
            except BrokenPipeError:
                # The other side has ended, and says why.
                pass
            except BaseException:
                process.kill()
                raise
            problem = process.stderr.read().decode("utf8", "replace")
        if process.returncode:
            raise LaunchError(f"{archive.name} cannot be copied to volume {self._name} (flink.volume): {_why(problem)}")

    def _shell(self, script: str) -> str:
        return self._kubectl.run("exec", self._pod, "-c", CONTAINER, "--", "sh", "-c", script)

    def _wait(self) -> None:
        found: list[Any] = []

        def has_ended() -> bool:
            pod = self._kubectl.get("pod", self._pod)
            problem = pods.waiting_reason(self._kubectl, [pod] if pod else [])
            found[:] = [pod, problem]
            return pod is None or pods.is_ready(pod) or bool(problem.error)

        in_time = wait_until(has_ended, self._timeout)
        pod, problem = found
        if not in_time or problem.error or pod is None:
            why = problem.error or problem.waits_for or "the pod was deleted"
            raise LaunchError(f"the pod that copies to volume {self._name} (flink.volume) does not start: {why}")

    def _resource(self, image: str, labels: Mapping[str, str], template: Mapping[str, Any]) -> dict[str, Any]:
        given = template.get("spec", {})
        overrides = (
            "securityContext",
            "nodeSelector",
            "tolerations",
            "affinity",
            "imagePullSecrets",
            "serviceAccountName",
        )
        main: Mapping[str, Any] = next((one for one in given.get("containers", ()) if one.get("name") == CONTAINER), {})
        container = {
            "name": CONTAINER,
            "image": image,
            "command": ["sh", "-c", "sleep 3600"],
            "volumeMounts": [{"name": "cluster-serving", "mountPath": VOLUME_FOLDER}],
            **({"securityContext": main["securityContext"]} if "securityContext" in main else {}),
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self._pod, "labels": dict(labels)},
            "spec": {key: given[key] for key in overrides if key in given}
            | {
                "restartPolicy": "Never",
                # A command that is killed leaves the pod; Kubernetes ends it.
                "activeDeadlineSeconds": 3600,
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "containers": [container],
                "volumes": [{"name": "cluster-serving", "persistentVolumeClaim": {"claimName": self._name}}],
            },
        }


def _why(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip() and "terminated with exit code" not in line]
    return reason("\n".join(lines[:1]))
