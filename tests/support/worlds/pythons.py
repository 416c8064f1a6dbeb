"""The wheel on other Pythons, installed and used.

    python -m tests.support.worlds.pythons [--light] [--wheel FOLDER] [PYTHON …]

makes an environment for each interpreter and installs the clone's wheel there, or that of a folder. On every Python the
light client, with the newest dependencies that it allows, runs `light_client_program` against a Redis and an echoing
consumer of this process. On the Pythons of Flink the server serves the quickstart's digits, unless `--light` is given.
Those that are too new for Flink install the server without it, and its first command names them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import redis

from cluster_serving.connectors.slot.groups import create_group
from tests.support.fixtures.echo import Consumer
from tests.support.fixtures.redis_server import RedisServer

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "tests" / "support" / "programs" / "light_client_program.py"
JOB = "light"

LIGHT = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
SERVER = ("3.10", "3.11", "3.12")
"""Pythons for which apache-flink has wheels."""
TOO_NEW = ("3.13", "3.14")


def main(arguments=None):
    """Use the wheel on all interpreters; returns how many uses failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--light", action="store_true", help="the light client alone, without Flink")
    parser.add_argument("--wheel", type=Path, metavar="FOLDER", help="folder with the wheel; default: the clone's own")
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help="such as python3.9; default: all that are found")
    options = parser.parse_args(arguments)
    pythons = {python: version_of(python) for python in options.pythons or find()}
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = wheel_in(options.wheel.absolute()) if options.wheel else build_wheel(folder)
        server = RedisServer(folder)
        try:
            with redis.Redis(port=server.port) as client:
                create_group(client, JOB)
            with Consumer(server.url, JOB):
                for python, version in pythons.items():
                    failed += report(version, "client", use_client(python, wheel, folder / f"client-{version}", server))
        finally:
            server.stop()
        for python, version in pythons.items():
            if version in TOO_NEW:
                failed += report(version, "refusal", refuses_server(python, wheel, folder / f"server-{version}"))
            elif version in SERVER and not options.light:
                failed += report(version, "server", use_server(python, wheel, folder / f"server-{version}"))
    return failed


def find():
    """Interpreters on PATH, or in ~/.pyenv, of the versions that are supported."""
    folders = [*os.environ["PATH"].split(os.pathsep), *map(str, Path.home().glob(".pyenv/versions/*/bin"))]
    found = {}
    for version in LIGHT:
        for folder in folders:
            python = shutil.which(f"python{version}", path=folder)
            # A shim of pyenv is there for every version, and fails for those that are not selected.
            if python and version_of(python) == version:
                found.setdefault(version, python)
    return list(found.values())


def version_of(python):
    """Major and minor version of an interpreter; empty if it does not run."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=False).stdout.strip()


def report(version, part, succeeded):
    print(f"Python {version}: {part} {'works' if succeeded else 'FAILED'}", flush=True)
    return not succeeded


def build_wheel(folder):
    """Build the clone's wheel and return its path."""
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    return wheel_in(folder)


def wheel_in(folder):
    (wheel,) = folder.glob("*.whl")
    return wheel


def use_client(python, wheel, folder, server):
    """Install the light client and run the program; returns whether it succeeded."""
    inside = install(python, f"{wheel}[encryption]", folder)
    # -I: neither the clone nor PYTHONPATH is importable.
    return run([inside, "-I", "-W", "error::DeprecationWarning", PROGRAM, server.url, JOB])


def use_server(python, wheel, folder):
    """Install the server, serve the quickstart's digits and stop; returns whether all of that succeeded."""
    inside = install(python, f"{wheel}[quickstart]", folder)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["CLUSTER_SERVING_HOME"] = str(folder / "state")
    served = run([inside.with_name("cluster-serving"), "quickstart"], cwd=folder, env=environment)
    stop = [inside.with_name("cluster-serving-shutdown"), "-c", "quickstart/config.yaml"]
    return run(stop, cwd=folder, env=environment) and served


def refuses_server(python, wheel, folder):
    """Install the server where Flink has no packages; returns whether its first command names the Python."""
    inside = install(python, f"{wheel}[server]", folder)
    ran = subprocess.run([inside.with_name("cluster-serving-init")], capture_output=True, text=True, check=False)
    return ran.returncode == 1 and "needs Python 3.10, 3.11 or 3.12, and this is" in ran.stderr


def install(python, what, folder):
    """Make an environment with a distribution in it and return its interpreter."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    inside = folder / "bin" / "python"
    pip(inside, "install", what)
    return inside


def pip(python, *arguments):
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def run(command, **options):
    return subprocess.run(command, check=False, **options).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
