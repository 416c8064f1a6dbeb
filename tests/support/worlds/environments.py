"""Python environments beside the project's own, for clients whose dependencies do not fit into it."""

import fcntl
import hashlib
import shutil
import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).parents[3]


def python_with(name, *installs):
    """Python of the environment `.venv/<name>`, made once.

    Args:
        name: Name of the folder.
        installs: Arguments of `pip install`, for one call each.
    """

    def make(folder):
        venv.create(folder, with_pip=True)
        for arguments in installs:
            pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
            subprocess.run([*pip, *arguments], check=True)

    return _made_once(name, [argument for arguments in installs for argument in arguments], make) / "bin" / "python"


def node_with(name, packages):
    """The folder `.venv/<name>` with packages of npm, made once."""

    def make(folder):
        folder.mkdir()
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        options = ["--silent", "--no-audit", "--no-fund", "--save-exact"]
        subprocess.run(["npm", "install", *options, *packages], cwd=folder, check=True)

    return _made_once(name, packages, make)


def _made_once(name, packages, make):
    """The folder `.venv/<name>`, which `make` fills if the packages are not those of the last time."""
    folder = ROOT / ".venv" / name
    text = " ".join(packages)
    stamp = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    # One of the processes that run tests makes it, and the others wait.
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            print(f"\nInstalling {text} into {folder.relative_to(ROOT)} (once, about a minute)")
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            stamp.touch()
    return folder
