"""`cluster-serving-init --from` in a folder of its own."""

import os

import pytest
import yaml

from cluster_serving.launcher import origins
from cluster_serving.launcher.errors import LaunchError
from tests.support.fixtures.commands import run


class Taking:
    """The command, and what it has written."""

    def __init__(self, folder):
        self.folder = folder
        self.model = folder / "model"

    def run(self, source, *arguments):
        environment = os.environ | {"CLUSTER_SERVING_HOME": str(self.folder / "state"), "COLUMNS": "400"}
        return run("cluster-serving-init", "--from", str(source), *arguments, cwd=self.folder, environment=environment)

    def take(self, source):
        """Take a model over; return what the command prints, and the keys that it has set."""
        done = self.run(source)
        assert done.returncode == 0, done.stdout + done.stderr
        keys = yaml.safe_load((self.folder / "config.yaml").read_text())
        return done.stdout, {key: value for key, value in keys.items() if value is not None and key != "modelPath"}

    def refused(self, source):
        """Return why a model is not taken over, and make sure that nothing is written."""
        with pytest.raises(LaunchError) as refused:
            origins.read(source)
        assert not list(self.folder.iterdir())
        return str(refused.value)

    def files(self):
        return sorted(str(path.relative_to(self.model)) for path in self.model.rglob("*") if path.is_file())


@pytest.fixture
def taking(tmp_path):
    folder = tmp_path / "ours"
    folder.mkdir()
    return Taking(folder)
