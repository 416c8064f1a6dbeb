"""The target `yarn-application`: YARN starts a Flink for each job, with all that the job needs."""

from __future__ import annotations

import re
import shlex
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.flink_cause import cause
from cluster_serving.launcher.services.flink_home import FlinkHome, java_home, python_path
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.services.process import wait_until
from cluster_serving.launcher.shipping import archive, bundle
from cluster_serving.launcher.shipping.bundle import Bundle
from cluster_serving.launcher.targets import submission
from cluster_serving.launcher.targets.applications import Application, Applications, Manager
from cluster_serving.launcher.targets.base import check_redis
from cluster_serving.launcher.targets.yarn.files import HadoopFiles
from cluster_serving.launcher.targets.yarn.hadoop import Hadoop
from cluster_serving.launcher.targets.yarn.keys import YarnKeys, of
from cluster_serving.launcher.targets.yarn.rest import ACTIVE, ENDED, YarnRest

TAG = "cluster-serving"
"""Tag of the applications of serving jobs."""

_SUBMISSION = "submission-"
_SHIPS = "ships-"
_OPTIONS = "options.json"
_FOLDERS = ".flink"
"""Folder, in the home folder of this user, where Flink keeps what an application needs while it runs."""

_STATES = {"SUCCEEDED": "FINISHED", "KILLED": "CANCELED", "FAILED": "FAILED"}
_RESERVED = {
    "yarn.application.name",
    "yarn.tags",
    "yarn.provided.lib.dirs",
    "yarn.ship-archives",
    "yarn.ship-files",
    "yarn.staging-directory",
}
"""Options of Flink by which the commands find a job again, or bring it what it needs."""

_MOMENT = re.compile(r"^\[[^\]]*\] *")
_END_WITHIN = 30.0
_TIMEOUT_MS = 15_000
"""Milliseconds in which a cluster with free resources starts an application."""


class YarnApplications(Applications):
    """The serving jobs of this user on a YARN cluster."""

    def __init__(self, hadoop: Hadoop) -> None:
        super().__init__()
        self._hadoop = hadoop
        self.rest = YarnRest(hadoop.resource_managers())

    def __enter__(self) -> YarnApplications:
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.rest.__exit__(*exc)

    @property
    def where(self) -> str:
        """YARN, with the address of its ResourceManager."""
        return f"YARN at {self.rest.url}"

    def applications(self, ended: bool) -> list[Application]:
        """Return the serving applications of this user."""
        found = self.rest.applications(ENDED if ended else ACTIVE, self._hadoop.user, TAG)
        return [self._read(raw) for raw in found]

    def application(self, id: str) -> Application:
        """Return an application."""
        raw = self.rest.application(id)
        return self._read(raw) if raw else Application(id, "", "CANCELED", 0.0, "")

    def archives(self) -> set[str]:
        """Return the names of the shared files that applications use, of all users."""
        found = self.rest.applications(ACTIVE, tag=TAG)
        return {tag.removeprefix(_SHIPS) for raw in found for tag in tags(raw) if tag.startswith(_SHIPS)}

    def page(self, job_id: str) -> str:
        """Return the address of the Flink UI through YARN's proxy, or of YARN's page of the application."""
        return self.application(job_id).url or f"{self.rest.url}/cluster/app/{job_id}"

    def remove(self, application: Application) -> None:
        """End an application, and remove its folder in the file system, which Flink removes only if it ends itself."""
        if not self._end_gently(application):
            with self._hadoop.client() as jvm:
                self._kill(jvm, application)
                HadoopFiles(jvm, "").remove(f"{_FOLDERS}/{application.id}")

    def _end_gently(self, application: Application) -> bool:
        raw = self.rest.application(application.id)
        if raw is None or raw["state"] in ENDED:
            return raw is None or raw["finalStatus"] == "SUCCEEDED"
        # The ResourceManager's proxy only reads.
        address = raw.get("amRPCAddress")
        if raw["state"] != "RUNNING" or not address:
            return False
        with suppress(LaunchError), FlinkRest(f"http://{address}") as flink:
            for job in flink.jobs(application.name):
                flink.cancel(job.id)
            flink.shut_down()
            return wait_until(lambda: self.application(application.id).has_ended, _END_WITHIN)
        return False

    def _kill(self, jvm: Any, application: Application) -> None:
        yarn = jvm.org.apache.hadoop.yarn
        client = yarn.client.api.YarnClient.createYarnClient()
        client.init(yarn.conf.YarnConfiguration())
        client.start()
        client.killApplication(yarn.api.records.ApplicationId.fromString(application.id))
        if not wait_until(lambda: self.application(application.id).has_ended, _END_WITHIN):
            raise LaunchError(
                f"application {application.id} has not ended after {_END_WITHIN:.0f} s; see {self.page(application.id)}"
            )

    def _read(self, raw: dict[str, Any]) -> Application:
        submission = next((tag for tag in tags(raw) if tag.startswith(_SUBMISSION)), "")
        ended = raw["state"] in ENDED
        running = raw["state"] == "RUNNING" and raw.get("trackingUI") == "ApplicationMaster"
        return Application(
            id=raw["id"],
            name=raw["name"],
            state=_STATES.get(raw["finalStatus"], "FAILED") if ended else raw["state"],
            seconds=raw["elapsedTime"] / 1000,
            submission=submission.removeprefix(_SUBMISSION),
            url=raw["trackingUrl"].rstrip("/") if running else "",
            error=diagnosis(raw.get("diagnostics", "")) if ended else "",
            waits_for="" if ended else self._missing(raw),
        )

    def _missing(self, raw: dict[str, Any]) -> str:
        if raw["elapsedTime"] < _TIMEOUT_MS:
            return ""
        if raw["state"] == "ACCEPTED" and raw.get("allocatedMB", 0) <= 0:
            return f"YARN to start it (queue {raw['queue']}: {self.rest.free()}): {pending(raw['diagnostics'])}"
        wanted = [request for request in raw.get("resourceRequests", ()) if request["resourceName"] == "*"]
        containers = [request["capability"] for request in wanted for _ in range(request["numContainers"])]
        if raw["state"] == "RUNNING" and containers:
            size = containers[0]
            return (
                f"{len(containers)} container{'s' * (len(containers) > 1)} of {size['memory']} MB and "
                f"{size['vCores']} vcores (queue {raw['queue']}: {self.rest.free()})"
            )
        return ""


class YarnApplication(Manager):
    """A YARN cluster that starts a Flink for each job.

    Flink, environment and model are in the cluster's file system, from which YARN gives them to every container: also
    after a failure, and without this machine.
    """

    keys = YarnKeys
    service = "yarn"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._hadoop = Hadoop()

    def flink(self) -> YarnApplications:
        """Return a client for the jobs of this user."""
        return YarnApplications(self._hadoop)

    def check(self) -> None:
        """Check that YARN answers, that Hadoop's client is here, and that the nodes can reach Redis."""
        if taken := sorted(_RESERVED & set(self.config.flink_options)):
            raise LaunchError(
                f"flink.options has {', '.join(taken)}, which the commands set for {self.config.target}; remove it"
            )
        check(self.config, self._hadoop)

    def submit(self, options: JobOptions) -> str:
        """Upload what is not in the cluster yet, and start an application."""
        loaded = bundle.load(self.config.ships, options)
        self.home.prepare({})
        with self.flink() as applications:
            cores = applications.rest.most_cores()
            libraries, archives = self._upload(loaded, applications)
            shipped = {TAG, f"{_SUBMISSION}{options.submission}", *(f"{_SHIPS}{Path(uri).name}" for uri in archives)}
            shipped.add(f"{_SHIPS}{Path(libraries).name}")
            with tempfile.TemporaryDirectory(dir=self.home.work) as folder:
                # Flink puts the file into a folder that only this user can enter.
                file = Path(folder, _OPTIONS)
                state.write(file, relocated(loaded).to_json())
                given = settings(self.config, loaded, cores) | {
                    "yarn.application.name": self.config.job_name,
                    "yarn.tags": ",".join(sorted(shipped)),
                    "yarn.provided.lib.dirs": [f"{libraries}/lib", f"{libraries}/plugins"],
                    "yarn.ship-archives": archives,
                    "yarn.ship-files": [str(file)],
                }
                self.prepare(options, given)
                _log_settings(self.home)
                say(f"Submitting job {self.config.job_name} to {applications.where}")
                return self._run(applications, options.submission)

    def _run(self, applications: YarnApplications, submitted: str) -> str:
        said = ""

        def watch() -> None:
            nonlocal said
            for found in applications.applications(ended=False):
                if found.submission == submitted and found.waits_for and found.waits_for != said:
                    said = found.waits_for
                    say(f"The job waits for {said}")

        log = self.home.log_of(self.config.job_name)
        arguments = ["run", "-d", "-t", "yarn-application", *submission.MAIN, "--options-file", _OPTIONS]
        environment = {"HADOOP_CONF_DIR": str(self._hadoop.folder)}
        timeout, classpath = self.config.start_timeout, self._hadoop.classpath
        try:
            output = submission.run(self.home, arguments, log, timeout, environment, classpath, watch)
        except LaunchError as error:
            raise LaunchError(f"{error}; the job waited for {said}" if said else str(error)) from None
        for ended in (False, True):
            for found in applications.applications(ended):
                if found.submission == submitted:
                    if ended:
                        applications.remove(found)
                        raise LaunchError(f"YARN ended the job: {found.error or refusal(output)} (output: {log})")
                    return found.id
        raise LaunchError(f"YARN did not take the job: {refusal(output)} (output: {log})")

    def _upload(self, loaded: Bundle, applications: YarnApplications) -> tuple[str, list[str]]:
        """Return the URIs of Flink's libraries and of the archives, which are in the cluster's file system then."""
        with self._hadoop.client() as jvm:
            files = HadoopFiles(jvm, of(self.config).flink_staging)
            flink = _flink_files(self.home)
            name = f"flink-{archive.digest_of(flink.items())[:16]}"
            libraries = files.ensure_folder(name, flink, "Flink")
            kinds = (loaded.environment, "Python and its packages"), (loaded.packages, "packages")
            archives = [files.ensure(file, what) for file, what in (*kinds, (loaded.model, "the model")) if file]
            # Left by YARN where somebody else has killed an application.
            for left in files.names(_FOLDERS) & {found.id for found in applications.applications(ended=True)}:
                files.remove(f"{_FOLDERS}/{left}")
            files.prune(applications.archives() | {Path(uri).name for uri in (libraries, *archives)})
        return libraries, archives


def check(config: Config, hadoop: Hadoop) -> None:
    """Check that a YARN cluster can be used: that it answers, has nodes, and that these can reach Redis.

    Raises:
        LaunchError: If it cannot be used.
    """
    _ = hadoop.classpath
    java_home()
    with YarnRest(hadoop.resource_managers()) as rest:
        rest.check()
        hosts = rest.hosts()
    if not hosts:
        raise LaunchError(
            f"YARN at {rest.url} has no node that runs; start a NodeManager, or set HADOOP_CONF_DIR to another cluster"
        )
    elsewhere = sorted(host for host in hosts if not is_here(host))
    if elsewhere:
        check_redis(config, f"YARN's nodes such as {elsewhere[0]}")


def pending(text: str) -> str:
    """Return why an application does not start, without times and nodes, which change all the time."""
    return _MOMENT.sub("", " ".join(text.split("\n"))).partition(".  ")[0]


def diagnosis(text: str) -> str:
    """Return YARN's words for what happened to an application, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    caused = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return caused[-1] if caused else " ".join(lines)[:600]


def refusal(output: str) -> str:
    """Return why Flink's client did not submit a job; some of its messages have several lines."""
    _, found, message = output.rpartition("YarnDeploymentException: ")
    return " ".join(message.partition("\tat ")[0].split()) if found else cause(output)


def tags(raw: dict[str, Any]) -> list[str]:
    """Return the tags of an application."""
    return str(raw.get("applicationTags", "")).split(",")


def is_here(host: str) -> bool:
    """Return True if a host is this machine: only an address of this machine can be bound to."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def relocated(loaded: Bundle) -> JobOptions:
    """Return the options of a job in a container: YARN unpacks an archive to a folder of the archive's name."""
    if loaded.model is None:
        return loaded.options
    return bundle.moved(loaded.options, loaded.model.name)


def settings(config: Config, loaded: Bundle, cores: int) -> dict[str, Any]:
    """Return Flink's settings for the containers of a job, which may each have at most `cores` virtual cores.

    The options of a job that is scaled or rolled back are not those of the configuration.
    """
    slots = min(config.slots_per_task_manager, loaded.options.model_parallelism)
    told: dict[str, Any] = {
        "jobmanager.memory.process.size": None,
        "jobmanager.memory.heap.size": "448m",
        # The main program, a Python, runs beside the JVM.
        "jobmanager.memory.off-heap.size": "640m",
        "yarn.containers.vcores": min(cores, slots * loaded.options.model.thread_per_model),
        # As many as YARN lets it have; failures that are older than a minute do not count.
        "yarn.application-attempts": 10,
        "yarn.application-attempt-failures-validity-interval": 60_000,
        "yarn.heartbeat.interval": 1,
    }
    if queue := of(config).flink_queue:
        told["yarn.application.queue"] = queue
    own = {"PYTHONPATH": ":".join(map(shlex.quote, python_path()))}
    python, variables = loaded.python(lambda archive: archive.name, "$PWD/") or (sys.executable, own)
    told |= {"python.executable": python, "python.client.executable": python}
    for role in ("master", "taskmanager"):
        told |= {f"containerized.{role}.env.{name}": value for name, value in variables.items()}
    return told


def _flink_files(home: FlinkHome) -> dict[PurePosixPath, Path]:
    """Return Flink's libraries and plugins as they are to lie in the cluster's file system."""
    files = (file for name in ("lib", "plugins") for file in sorted((home.path / name).rglob("*")) if file.is_file())
    return {PurePosixPath(file.relative_to(home.path)): file for file in files}


def _log_settings(home: FlinkHome) -> None:
    """Give Flink's containers the logging of a cluster here; YARN's Flink looks for it under this name."""
    conf = home.path / "conf"
    (conf / "log4j.properties").write_bytes((conf / "log4j-console.properties").read_bytes())
