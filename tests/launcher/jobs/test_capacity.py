from pathlib import Path

import pytest

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import capacity
from cluster_serving.launcher.services import memory
from cluster_serving.protocol.host import cgroup


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Check a job with a model of 40 MiB, on a machine of 8 GiB and 2 cores."""
    monkeypatch.setattr(memory, "total_memory", lambda: 8 << 30)
    monkeypatch.setattr(cgroup, "cores", lambda: 2)
    (tmp_path / "model.onnx").write_bytes(bytes(40 << 20))

    def check(slots, **keys):
        capacity.check(Config.model_validate({"modelPath": "m", "modelParallelism": slots} | keys), [tmp_path])

    return check


def test_what_the_memory_holds_is_not_refused(check):
    check(8)
    check(100)
    check(40, executionMode="process")


def test_slots_that_the_memory_cannot_hold_are_refused_with_the_arithmetic(check):
    with pytest.raises(LaunchError) as error:
        check(1000)
    message = str(error.value)
    for part in ("modelParallelism: 1000 ", "125 TaskManagers of at least 256.0 MiB", "copies", "10.0 MiB", "8.0 GiB"):
        assert part in message
    possible = int(message.partition("Set modelParallelism to ")[2].split()[0])
    check(possible)
    with pytest.raises(LaunchError):
        check(possible + 8)


def test_slots_that_would_use_the_cores_when_idle_are_refused(check, monkeypatch):
    monkeypatch.setattr(memory, "total_memory", lambda: 8 << 40)
    check(400)
    with pytest.raises(LaunchError, match="modelParallelism to 400 at most"):
        check(401)


def test_this_machine_has_memory_and_cores():
    assert memory.total_memory() >= memory.available_memory() > 0
    assert cgroup.cores() > 0
    assert memory.size_of(Path(__file__)) == Path(__file__).stat().st_size
