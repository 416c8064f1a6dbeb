"""The light client on other Pythons, installed with the newest dependencies that it allows.

    python -m tests.support.light_client python3.9 python3.14

makes an environment for each interpreter, installs the clone's wheel into it, and runs `light_client_program` there
against a Redis and an echoing consumer of this process.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import redis

from cluster_serving.connectors.stream import create_group
from tests.support.echo import Echo
from tests.support.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("light_client_program.py")
JOB = "light"


def main(arguments=None):
    """Run the program on all interpreters; returns how many of them failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="an interpreter, such as python3.9")
    pythons = parser.parse_args(arguments).pythons
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build_wheel(folder)
        server = RedisServer(folder)
        try:
            with redis.Redis(port=server.port) as client:
                create_group(client, JOB)
            with Echo(server.url, JOB):
                return sum(not run(python, wheel, folder / f"py{i}", server) for i, python in enumerate(pythons))
        finally:
            server.stop()


def build_wheel(folder):
    """Build the clone's wheel and return its path."""
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def run(python, wheel, folder, server):
    """Install the wheel beside an interpreter and run the program; returns whether it succeeded."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    inside = folder / "bin" / "python"
    pip(inside, "install", f"{wheel}[encryption]")
    # -I: neither the clone nor PYTHONPATH is importable.
    command = [inside, "-I", "-W", "error::DeprecationWarning", PROGRAM, server.url, JOB]
    return subprocess.run(command, check=False).returncode == 0


def pip(python, *arguments):
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
