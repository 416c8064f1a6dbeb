"""Scripts of a shell."""

import subprocess


def shell_problem(script):
    """Return what bash says of a script that it cannot read; empty if it can. Nothing of the script runs."""
    return subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False).stderr
