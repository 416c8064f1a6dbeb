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
    folder = ROOT / ".venv" / name
    python = folder / "bin" / "python"
    text = " ".join(argument for arguments in installs for argument in arguments)
    stamp = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    # One of the processes that run tests makes it, and the others wait.
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            print(f"\nInstalling {text} into {folder.relative_to(ROOT)} (once, about a minute)")
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            for arguments in installs:
                pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
                subprocess.run([*pip, *arguments], check=True)
            stamp.touch()
    return python
