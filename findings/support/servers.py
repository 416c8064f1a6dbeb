"""Servers of Redis and Valkey, which packages bring, one after another."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import redis


def servers() -> Iterator[tuple[str, redis.Redis]]:
    """Start each server in the folder `servers`; yield its name with version, and a client; stop the server."""
    programs = [path for path in Path("servers").rglob("*-server") if path.name in ("redis-server", "valkey-server")]
    for number, program in enumerate(sorted(path for path in programs if path.parent.parent.name != "servers")):
        socket = Path(f"{number}.socket")
        command = [program, "--port", "0", "--unixsocket", socket, "--save", ""]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:  # noqa: S603  the programs of the packages
            while not socket.exists() and server.poll() is None:
                time.sleep(0.05)
            try:
                client = redis.Redis(unix_socket_path=str(socket), decode_responses=True)
                version = client.info("server")
                kind = "valkey" if "valkey_version" in version else "redis"
                yield f"{kind.title()} {version[kind + '_version']}", client
            finally:
                server.terminate()
