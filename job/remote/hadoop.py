"""WebHDFS addresses of the NameNodes of an HDFS, from the files in `$HADOOP_CONF_DIR`."""

import os
import re
from pathlib import Path
from xml.etree import ElementTree

DEFAULT_PORT = 9870
"""Port of a NameNode's HTTP server, unless its configuration says otherwise."""

_FILES = ("core-site.xml", "hdfs-site.xml")
_SCHEME = "hdfs://"


def namenodes(service: str) -> list[str]:
    """Return `host:port` of the HTTP servers of an HDFS, several if one NameNode stands by for another.

    `service` is the host, with or without the port of its RPC server, or the name of an HDFS that the configuration
    has; empty for the default file system of the configuration.

    Raises:
        ValueError: If `service` is empty, and the configuration has no HDFS.
    """
    options = _configuration()
    if not service:
        default = options.get("fs.defaultFS", "")
        service = default.removeprefix(_SCHEME).strip("/") if default.startswith(_SCHEME) else ""
    if not service:
        raise ValueError("hdfs:///... needs a HADOOP_CONF_DIR whose core-site.xml has an HDFS as fs.defaultFS")
    if names := options.get(f"dfs.ha.namenodes.{service}"):
        found = [options.get(f"dfs.namenode.http-address.{service}.{name.strip()}") for name in names.split(",")]
        return [address for address in found if address]
    host = service.partition(":")[0]
    # An address such as 0.0.0.0:9870 tells the port alone.
    configured, _, port = options.get("dfs.namenode.http-address", "").partition(":")
    own = options.get("dfs.namenode.rpc-address") or options.get("fs.defaultFS", "").removeprefix(_SCHEME).strip("/")
    # Another HDFS than that of the configuration may be named, too.
    if port and host == own.partition(":")[0]:
        return [f"{host if configured in ('', '0.0.0.0') else configured}:{port}"]  # noqa: S104 - compared only
    return [f"{host}:{DEFAULT_PORT}"]


def _configuration() -> dict[str, str]:
    folder = os.environ.get("HADOOP_CONF_DIR")
    options: dict[str, str] = {}
    for path in (Path(folder, name) for name in _FILES if folder):
        if path.is_file():
            # A file of the machine's administrator.
            for entry in ElementTree.parse(path).iter("property"):  # noqa: S314
                options[(entry.findtext("name") or "").strip()] = (entry.findtext("value") or "").strip()
    return {
        name: re.sub(r"\$\{([^}]+)\}", lambda match: options.get(match[1], match[0]), value)
        for name, value in options.items()
    }
