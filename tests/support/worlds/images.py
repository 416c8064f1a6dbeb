"""Builds the images without a registry: a base image by debootstrap, and packages by pip of this machine.

Usage:
    python -m tests.support.worlds.images [--engine docker|buildah] [--extras quickstart] [--tag test] [--work FOLDER]

As root, with debootstrap and the engine. It makes cluster-serving-base, cluster-serving-client and
cluster-serving-flink; the base image also has a Redis and a Valkey, for tests/clusters.
"""

import argparse
import functools
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cluster_serving.launcher.services import redis_program

ROOT = Path(__file__).parents[3]
DEBIAN = "bookworm"
PYTHON = "3.11"
"""Of that Debian; packages are chosen for it by the pip of the same version that runs this program."""

PACKAGES = ["python3", "python3-venv", f"libpython{PYTHON}", "ca-certificates", "redis-server"]

# What the images need beside the package: the tools of their build, and what a Python of before 3.11.3 needs.
FURTHER = ["hatchling>=1.27,<2", "cyclonedx-bom>=7,<8", "async-timeout>=4,<6"]


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that logs nothing."""

    def log_message(self, *_):
        pass


def run(*command, **options):
    """Run a command; its output is that of this program."""
    began = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, **options)
    print(f"{time.monotonic() - began:6.1f} s  {' '.join(map(str, command))[:100]}", flush=True)


def has_image(engine, name):
    """Return True if the engine has an image of that name."""
    return subprocess.run([engine, "inspect", "--type=image", name], capture_output=True).returncode == 0


def make_base(engine, name, work):
    """Make an image of a small Debian with Python, as python:3.11-slim has it, Redis and Valkey."""
    rootfs = work / "rootfs"
    if not rootfs.exists():
        include = f"--include={','.join(PACKAGES)}"
        run("debootstrap", "--variant=minbase", include, DEBIAN, rootfs, stdout=subprocess.DEVNULL)
        for folder in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"):
            shutil.rmtree(rootfs / folder)
        # Compose prefers it; the chart takes Redis, by the name of the image.
        shutil.copy(redis_program.find(), rootfs / "usr/local/bin/valkey-server")
    archive = work / "rootfs.tar"
    run("tar", "-C", rootfs, "-cf", archive, ".")
    if engine == "docker":
        run("docker", "import", archive, name)
    else:
        (work / "Containerfile").write_text("FROM scratch\nADD rootfs.tar /\n")
        run("buildah", "build", "-t", name, work)
    archive.unlink()


def make_index(work, extras):
    """Make a package index of all wheels that the images install."""
    wheels = work / "wheels"
    wanted = [f"{ROOT}[{extras}]", f"{ROOT}[http,traces]", *FURTHER]
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", wheels, "--find-links", wheels, *wanted)
    index = work / "index"
    shutil.rmtree(index, ignore_errors=True)
    for wheel in wheels.glob("*.whl"):
        name = re.sub("[-_.]+", "-", wheel.name.partition("-")[0]).lower()
        if name != "cluster-serving":
            (index / name).mkdir(parents=True, exist_ok=True)
            (index / name / wheel.name).hardlink_to(wheel)
    return index


def build(engine, tag, extras, index):
    """Build both images, with the index served to pip."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=index)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        arguments = {
            "BASE": f"cluster-serving-base:{tag}",
            "EXTRAS": extras,
            "PIP_INDEX_URL": f"http://127.0.0.1:{server.server_port}/",
        }
        given = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
        for target in ("client", "flink"):
            image = f"cluster-serving-{target}:{tag}"
            layers = ["--layers"] if engine == "buildah" else []
            run(engine, "build", "--quiet", *layers, "--network=host", *given, "--target", target, "-t", image, ROOT)
        server.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="docker", choices=["docker", "buildah"])
    parser.add_argument("--extras", default="quickstart")
    parser.add_argument("--tag", default="test")
    parser.add_argument("--work", type=Path, help="folder that keeps the Debian and the wheels for the next time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = (given.work or Path(folder)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        base = f"cluster-serving-base:{given.tag}"
        with ThreadPoolExecutor() as pool:
            needed = () if has_image(given.engine, base) else (base,)
            made = [pool.submit(make_base, given.engine, name, work) for name in needed]
            index = make_index(work, given.extras)
            for future in made:
                future.result()
        build(given.engine, given.tag, given.extras, index)


if __name__ == "__main__":
    main()
