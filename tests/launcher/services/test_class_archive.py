"""The archive of Flink's classes, with the Java and the Flink that are installed."""

import fcntl
import os
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster_serving.launcher.services import class_archive, flink_jvm, state
from cluster_serving.launcher.services.flink_home import FlinkHome
from tests.support.fixtures.waiting import wait_until

CLASS = "org.apache.flink.client.cli.CliFrontend"
RPC_CLASS = "org.apache.pekko.actor.ActorSystem"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home whose JVM has listed its classes, of which the archive was made."""
    folder = tmp_path_factory.mktemp("state with space")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(state.HOME, str(folder))
        home = FlinkHome(folder / "flink-1")
        home.prepare({})
        class_archive.use(home)
        assert "shared objects file" not in loaded(home, CLASS)
        assert "shared objects file" not in loaded(home, RPC_CLASS, "jobmanager")
        class_archive.make(home)
        yield home


@pytest.fixture
def other(home):
    """Another cluster of the same installation."""
    other = FlinkHome(state.root() / "flink-2")
    other.prepare({})
    return other


def loaded(home, name, role="client"):
    """Run Flink's client, or a JobManager that ends, and return the line that says from where it has loaded a class."""
    environment = home.environment() | {"JDK_JAVA_OPTIONS": "-Xlog:class+load"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = f"rest.bind-port={taken.getsockname()[1]}"
        arguments = ["--version"] if role == "client" else ["-D", port, "-D", "rest.bind-address=127.0.0.1"]
        command = flink_jvm.command(home, role, home.logs / f"{role}.log", *arguments)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=role == "client")
    # A JobManager may warn of a method of Java that Flink uses.
    lines = [line for line in done.stderr.splitlines() if "JDK_JAVA_OPTIONS" not in line]
    assert not [line for line in lines if role == "client" or not line.startswith("WARNING: ")]
    return next(line for line in done.stdout.splitlines() if f" {name} " in line)


def archives():
    return list((state.root() / "classes").glob("*.jsa"))


def test_the_next_jvm_of_the_cluster_takes_its_classes_from_the_archive(home):
    assert "shared objects file" in loaded(home, CLASS)
    assert "shared objects file" in loaded(home, RPC_CLASS, "jobmanager")
    assert not list((home.path / "classes").iterdir())


def test_another_cluster_of_the_installation_takes_the_same_archive(other):
    class_archive.use(other)
    assert "shared objects file" in loaded(other, CLASS)
    assert len(archives()) == 1


def test_another_class_path_needs_another_archive(other):
    (other.path / "lib" / "another.jar").write_bytes(b"")
    class_archive.use(other)
    assert "DumpLoadedClassList" in other.java_options.read_text()


def test_a_broken_archive_is_left_out_without_a_word(home):
    (archive,) = archives()
    whole = archive.with_suffix(".whole")
    archive.rename(whole)
    archive.write_bytes(whole.read_bytes()[:4096])
    assert "shared objects file" not in loaded(home, CLASS)
    whole.replace(archive)


def test_two_processes_do_not_make_one_archive(other):
    (other.path / "lib" / "another.jar").write_bytes(b"")
    class_archive.use(other)
    before = archives()
    with (state.root() / "classes" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        class_archive.make(other)
    assert archives() == before


def test_a_shutdown_ends_no_archive_and_those_of_installations_that_are_gone_are_removed(other):
    folder = state.root() / "classes"
    for age in range(1, 5):
        (folder / f"old{age}.jsa").touch()
        os.utime(folder / f"old{age}.jsa", (1000 - age, 1000 - age))
    (other.path / "lib" / "another.jar").write_bytes(b"")
    class_archive.use(other)
    loaded(other, CLASS)
    before = {*archives()}
    with ThreadPoolExecutor() as pool:
        made = pool.submit(class_archive.make, other)
        wait_until(lambda: [*folder.glob("*.lists/classes")])
        shutil.rmtree(other.path / "classes")
        other.java_options.unlink()
        made.result()
    assert len({*archives()} - before) == 1
    assert {path.stem for path in archives()} & {"old1", "old2", "old3", "old4"} == {"old1"}
    assert not [*folder.glob("*.lists")]
