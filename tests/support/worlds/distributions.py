"""Distributions with entry points, as pip would install them, in a folder for PYTHONPATH."""

import shutil
import textwrap
from pathlib import Path


def install(folder, name, module, entry, group="cluster_serving.engines"):
    """Make a distribution of a module, its code or a file; code is the module `constants`."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    if isinstance(module, Path):
        shutil.copy(module, folder)
    else:
        (folder / "constants.py").write_text(textwrap.dedent(module))
