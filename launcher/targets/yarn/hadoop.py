"""The Hadoop that the environment names: its configuration, and the classes of its client."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_home import java_home

_CONFIGURATION = "HADOOP_CONF_DIR"
_CLASSES = "HADOOP_CLASSPATH"
_USER = "HADOOP_USER_NAME"
_FILES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml")
_VARIABLE = re.compile(r"\$\{([^}]+)\}")
_DEFAULTS = {
    "yarn.resourcemanager.hostname": "0.0.0.0",  # noqa: S104 - Hadoop's own default
    "yarn.resourcemanager.webapp.address": "${yarn.resourcemanager.hostname}:8088",
    "yarn.resourcemanager.webapp.https.address": "${yarn.resourcemanager.hostname}:8090",
    "yarn.http.policy": "HTTP_ONLY",
}
# What Hadoop's client reflects on, in Java 17.
_OPENED = ("java.lang", "java.lang.reflect", "java.util", "java.util.concurrent", "java.io", "java.net", "java.nio")


class Hadoop:
    """A Hadoop cluster, as `HADOOP_CONF_DIR` and `HADOOP_CLASSPATH` describe it.

    Raises:
        LaunchError: If the variable that is needed is not set, or names nothing usable.
    """

    @cached_property
    def folder(self) -> Path:
        """Folder with the configuration."""
        value = os.environ.get(_CONFIGURATION)
        if not value:
            raise LaunchError(
                f"{_CONFIGURATION} is not set; export it with the folder that has the cluster's core-site.xml and "
                "yarn-site.xml, such as /etc/hadoop/conf"
            )
        folder = Path(value).absolute()
        if not (folder / "yarn-site.xml").is_file():
            raise LaunchError(
                f"{_CONFIGURATION} is {folder}, which has no yarn-site.xml; set it to the folder that has"
            )
        return folder

    @property
    def classpath(self) -> list[str]:
        """Class path of Hadoop's client, with its configuration first."""
        value = os.environ.get(_CLASSES)
        if not value:
            raise LaunchError(
                f'{_CLASSES} is not set; run export {_CLASSES}="$(hadoop classpath)", as Flink has no classes of Hadoop'
            )
        return [str(self.folder), *(entry for entry in value.strip().split(os.pathsep) if entry)]

    @property
    def user(self) -> str:
        """User that Hadoop knows this command by, without Kerberos."""
        try:
            return os.environ.get(_USER) or getpass.getuser()
        except (KeyError, OSError):
            raise LaunchError(f"user {os.getuid()} has no name: set {_USER} to a user that Hadoop knows") from None

    def get(self, key: str) -> str:
        """Return a value of the configuration, with what its variables stand for; empty if there is none."""
        value = self._values.get(key) or _DEFAULTS.get(key, "")
        return _VARIABLE.sub(lambda match: self.get(match[1]), value)

    def resource_managers(self) -> list[str]:
        """Return the URLs of the ResourceManagers; one of them is active."""
        scheme = "https" if self.get("yarn.http.policy") == "HTTPS_ONLY" else "http"
        key = f"yarn.resourcemanager.webapp.{'https.' if scheme == 'https' else ''}address"
        ids = [f".{id.strip()}" for id in self.get("yarn.resourcemanager.ha.rm-ids").split(",") if id.strip()]
        found = [self.get(f"{key}{id}") for id in ids] or [self.get(key)]
        return [f"{scheme}://{address}" for address in found if address]

    @cached_property
    def _values(self) -> dict[str, str]:
        values: dict[str, str] = {}
        for file in filter(Path.is_file, (self.folder / name for name in _FILES)):
            try:
                root = ElementTree.parse(file).getroot()  # noqa: S314 - the user's own configuration
            except (ElementTree.ParseError, OSError) as error:
                raise LaunchError(f"{file} cannot be read: {error}") from None
            for entry in root.iter("property"):
                values[(entry.findtext("name") or "").strip()] = (entry.findtext("value") or "").strip()
        return values

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Run a JVM with Hadoop's client, and return its packages: `jvm.org.apache.hadoop`."""
        options = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        with Path(os.devnull).open("w") as nothing:
            port, token, process = launch_gateway(
                classpath=os.pathsep.join(self.classpath),
                javaopts=[*options, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"],
                java_path=str(java_home() / "bin" / "java"),
                die_on_exit=True,
                enable_auth=True,
                redirect_stdout=nothing,
                redirect_stderr=nothing,
                return_proc=True,
            )
        # The JVM is short-lived: it need not hear of each object that is not used any more.
        parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True, enable_memory_management=False)
        gateway = JavaGateway(gateway_parameters=parameters)
        try:
            yield gateway.jvm
        except Py4JJavaError as error:
            raise LaunchError(f"Hadoop: {reason(error)}") from None
        except Py4JError as error:
            raise LaunchError(f"Hadoop's client in {_CLASSES} cannot be used: {error}") from None
        finally:
            gateway.close()
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()


def reason(error: Py4JJavaError) -> str:
    """Return the first line of an exception of Hadoop."""
    return str(error.java_exception.toString()).strip().splitlines()[0]
