"""The roles of a container: each becomes one JVM of Flink, which gets the signals of the container."""

import os
import sys
import uuid
from pathlib import Path
from typing import Any, NoReturn

import yaml
from redis.exceptions import RedisError

from cluster_serving.job.models.folder import check_model
from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.config import file, versions
from cluster_serving.launcher.config.job_options import job_options, model_options, sized_for
from cluster_serving.launcher.config.model import NO_FOLDER, Config
from cluster_serving.launcher.container import checks
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.store import JobStore, generation_of, opened
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.process import wait_until
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.generations import SERVING
from cluster_serving.protocol.redis.connection import translated
from cluster_serving.protocol.slots import SILENT_AFTER_S

CONFIG = "CONFIG"
"""Environment variable with the path of the job's `config.yaml`, for the roles `application` and `options`."""

OPTIONS = "OPTIONS_FILE"
"""Environment variable with the path of the file that the role `options` writes."""

IMAGE_HOME = Path("/opt/flink")
"""Flink in the image, where Flink's Kubernetes mode and the Flink Kubernetes Operator look."""

_DEFAULT_CONFIG = "/etc/cluster-serving/config.yaml"
# Redis may be starting beside this container.
_REDIS_WITHIN = 20.0
# A TaskManager notices the death of its JobManager within 50 s, by Flink's defaults; then its slots fall silent.
_ENDS_WITHIN = 50.0 + SILENT_AFTER_S + 10.0
_DRIVER = "org.apache.flink.client.python.PythonDriver"


def properties() -> dict[str, Any]:
    """Return the Flink options of the environment variable FLINK_PROPERTIES.

    It has one `key: value` a line; a key without a value unsets an option.
    """
    given = yaml.safe_load(os.environ.get("FLINK_PROPERTIES", "")) or {}
    if not isinstance(given, dict):
        raise LaunchError("FLINK_PROPERTIES must have one 'key: value' a line")
    return given


def home() -> FlinkHome:
    """Return the folder of the Flink process in this container."""
    return FlinkHome(state.root() / "flink")


def role_file() -> Path:
    """Return the file that names the role, for the health check."""
    return home().path / "role"


def options_file() -> Path:
    """Return the file with the options of this container's job."""
    return Path(os.environ.get(OPTIONS) or home().path / "options.json")


def jobmanager() -> NoReturn:
    """Become a JobManager to which commands submit jobs."""
    _prepare()
    _become("jobmanager", "jobmanager.sh")


def taskmanager() -> NoReturn:
    """Become a TaskManager."""
    try:
        checks.can_embed_python()
    except LaunchError as error:
        # The job may run in process mode, which only the JobManager knows.
        _warn(str(error))
    _prepare()
    _become("taskmanager", "taskmanager.sh")


def application() -> NoReturn:
    """Become a JobManager that submits the job of the `config.yaml` named by the variable CONFIG.

    Raises:
        LaunchError: If the job cannot be started as configured, or Redis does not answer.
        ServingError: If the configuration or the model is not as expected.
    """
    _prepare()
    options()
    job = ["--job-classname", _DRIVER, "-pym", "cluster_serving.job.main", "--options-file", str(options_file())]
    _become("application", "standalone-job.sh", *job)


def options() -> None:
    """Write the options of the job, for a JobManager that something else starts in this pod.

    Raises:
        LaunchError: If the job cannot be started as configured, or Redis does not answer.
        ServingError: If the configuration or the model is not as expected.
    """
    config = versions.resolved(file.read(Path(os.environ.get(CONFIG) or _DEFAULT_CONFIG), _warn))
    if config.execution_mode == "thread":
        checks.can_embed_python()
    config = _sized(config)
    made = _options(config, *_number(config))
    with opened(config) as store, translated(store.client):
        _await_end(store)
        try:
            state.write(options_file(), made.to_json())
        except OSError as error:
            raise LaunchError(f"{options_file()} cannot be written: {error.strerror}") from None
        _introduce(store, made)


def install() -> None:
    """Put Flink where Flink's Kubernetes mode and the Flink Kubernetes Operator look, when an image is built.

    Raises:
        LaunchError: If the image lacks what Flink needs.
    """
    checks.can_embed_python()
    FlinkHome(IMAGE_HOME).prepare({"python.executable": "python", "python.client.executable": "python"})


def _become(role: str, script: str, *arguments: str) -> NoReturn:
    role_file().write_text(role)
    os.chdir(home().work)
    path = str(home().path / "bin" / script)
    os.execve(path, [path, "start-foreground", *arguments], home().environment())  # noqa: S606 - Flink's own script


def _prepare() -> None:
    folder = home().path
    try:
        home().prepare(properties())
    except OSError as error:
        raise LaunchError(
            f"{folder} cannot be written ({error.strerror}): mount a volume there that user {os.getuid()} may write, "
            f"such as a tmpfs, or an emptyDir with fsGroup: {os.getgid()}; or name another folder in {state.HOME}"
        ) from None


def _sized(config: Config) -> Config:
    if Path(config.model_path).is_dir():
        return sized_for(config, check_model(model_options(config)).format.engine)
    # The TaskManagers have the model, the JobManager need not.
    if config.core_number_per_machine is not None:
        raise LaunchError(
            f"coreNumberPerMachine depends on the model's engine, and {config.model_path} is not here; set "
            "modelParallelism and threadPerModel instead, or mount the model in this container too"
        )
    return config


def _options(config: Config, generation: int, version: int) -> JobOptions:
    # Clients are in other containers: only a folder that was named on purpose is shared with them.
    folder = "" if config.payload_folder == NO_FOLDER else config.payload_folder
    return job_options(config, uuid.uuid4().hex, folder, generation, version)


def _number(config: Config) -> tuple[int, int]:
    """Return number and version of a new generation, when Redis can be used and has the secret of the model."""
    number, version, problem = 0, 0, ""

    def is_given() -> bool:
        nonlocal number, version, problem
        try:
            with opened(config) as store:
                store.put_secret(config)
                number = store.next_number()
                version = store.next_version(number)
        except (ServingError, RedisError, OSError) as error:
            if not problem:
                print(f"Waiting for Redis at {config.redis_shown}: {error}", file=sys.stderr, flush=True)
            problem = str(error)
            return False
        return True

    if not wait_until(is_given, _REDIS_WITHIN):
        raise LaunchError(f"Redis at {config.redis_shown} cannot be used: {problem}")
    return number, version


def _await_end(store: JobStore, seconds: float = _ENDS_WITHIN) -> None:
    """Wait for the end of the slots that the job has: those of a JobManager that has died end by themselves.

    Raises:
        LaunchError: If they go on: another Flink runs the job.
    """
    if not _answers(store):
        return
    _warn(f"job {store.job} runs already; waiting {seconds:.0f} s for the end of its slots")
    if not wait_until(lambda: not _answers(store), seconds):
        raise LaunchError(
            f"job {store.job} runs in another Flink, and would answer no request any more: stop it there, or set "
            "another jobName"
        )


def _answers(store: JobStore) -> bool:
    return any(report.state == "ready" for report in store.slots())


def _introduce(store: JobStore, options: JobOptions) -> None:
    """Tell Redis of the job: a generation that serves, and slots that are loading."""
    # Nothing here learns later that the start has succeeded.
    store.count_version(options)
    store.begin(generation_of(options, SERVING))
    store.announce(options.submission, options.model_parallelism)


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)
