"""Preflight of a restart: the new model is loaded in a process of its own while the old one goes on serving."""

import json
import signal
import subprocess

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.store import opened
from cluster_serving.launcher.services import memory
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.supervisor import python_command
from cluster_serving.launcher.shipping.inspection import size_of
from cluster_serving.protocol.keys import missing_secret


def fits(options: JobOptions) -> bool:
    """Return True if a further copy of the model surely fits into the free memory of this machine."""
    size = size_of(options.model)
    return size is not None and memory.ENGINE + memory.loading(size) < memory.available_memory()


def run(home: FlinkHome, options: JobOptions, secret: tuple[str, str], timeout: float) -> None:
    """Load the model of a job, with the environment of the cluster's TaskManagers.

    Raises:
        LaunchError: If a slot could not serve the model; the message has the cause.
    """
    command = python_command("cluster_serving.job.programs.rehearsal")
    given = json.dumps({"options": options.to_json(), "secret": secret})
    try:
        ran = subprocess.run(  # noqa: S603 - our own module, no shell
            command, input=given, cwd=home.work, env=home.environment(), capture_output=True, timeout=timeout, text=True
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"the model was not loaded within {timeout:.0f} s (startTimeout); set a longer startTimeout"
        ) from None
    if ran.returncode < 0:
        name = signal.Signals(-ran.returncode).name
        raise LaunchError(
            f"loading the model in {options.model.path} ended its process ({name}); cluster-serving-cli try loads it "
            "in the foreground, and the log of the kernel (dmesg) tells whether memory ran out"
        )
    if ran.returncode:
        raise LaunchError(ran.stdout or next(reversed(ran.stderr.strip().splitlines()), "the model cannot be loaded"))


def secret_of(config: Config) -> tuple[str, str]:
    """Return secret and salt of an encrypted model, as configured or as Redis has them; empty texts for any other.

    Raises:
        LaunchError: If neither has them.
    """
    secret = config.model_secret if config.model_encrypted else ("", "")
    if secret is None:
        with opened(config) as store:
            secret = store.secret(config)
    if secret is None:
        raise LaunchError(missing_secret(config.job_name))
    return secret
