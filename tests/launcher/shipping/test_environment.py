"""The environment archive, unpacked where nothing else is."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from cluster_serving.launcher.shipping import archive, environment, interpreter
from tests.support.fixtures.messages import heard


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLUSTER_SERVING_HOME", str(tmp_path_factory.mktemp("state")))
        with heard() as said:
            path = environment.ensure({"job"})
            # A second time there is nothing to pack.
            assert environment.ensure({"job"}) == path
        assert len(said) == 1
    return path


@pytest.fixture(scope="module")
def unpacked(packed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run(["tar", "-xzf", packed, "-C", folder], check=True)
    return folder


def run(unpacked, code):
    ran = subprocess.run(
        [unpacked / interpreter.PROGRAM, "-c", code], env={}, cwd="/", capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_unpacked_interpreter_uses_nothing_of_this_machine_but_its_c_library(unpacked):
    linked = subprocess.run(["ldd", unpacked / interpreter.PROGRAM], capture_output=True, text=True, check=True).stdout
    assert f"=> {unpacked}/" in linked
    paths = run(unpacked, "import sys; print(*[sys.prefix, *sys.path[1:]], sep='\\n')").split()
    assert {path for path in paths if not path.startswith(str(unpacked))} == set()
    libraries = run(
        unpacked,
        "import ssl, ctypes, bz2, lzma, sqlite3\n"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}, sep='\\n')",
    ).split()
    foreign = {Path(path).name for path in libraries if not path.startswith(str(unpacked))}
    assert all(name.startswith(("libc.so", "libm.so", "ld-linux", "libdl", "libpthread")) for name in foreign), foreign


def test_the_unpacked_interpreter_runs_the_job(unpacked):
    code = (
        "import cluster_serving.job.operators as job, cluster_serving.embed.flink_score as score\n"
        "import pyflink, cv2, redis, pyarrow\n"
        "print(job.__file__, score.__file__, cv2.__file__, sep='\\n')"
    )
    assert all(path.startswith(str(unpacked)) for path in run(unpacked, code).split())


def test_engines_that_the_model_does_not_need_stay_behind(packed):
    with tarfile.open(packed) as tar:
        tops = {name.removeprefix(f"{interpreter.SITE_PACKAGES}/").partition("/")[0] for name in tar.getnames()}
    assert {"pyflink", "cluster_serving", "numpy"} <= tops
    assert not {"openvino", "torch", "tensorflow", "onnxruntime", "pytest", "typer"} & tops


def test_a_write_that_is_interrupted_leaves_no_archive(tmp_path, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path))
    path = archive.path_of("model", "0" * 64, ".tar")

    def interrupt(text):
        raise KeyboardInterrupt

    monkeypatch.setattr(archive, "say_progress", interrupt)
    with pytest.raises(KeyboardInterrupt):
        archive.write(path, [(Path("a"), Path(sys.executable))], "the model")
    assert list(archive.folder().iterdir()) == []
    assert not archive.touch(path)


def test_archives_of_other_content_have_other_names_and_few_are_kept(tmp_path, monkeypatch, said):
    from cluster_serving.launcher.shipping import bundle

    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path))
    folder = tmp_path / "model"
    folder.mkdir()
    names = []
    for content in ("a", "b", "b", "c", "d", "e"):
        (folder / "weights.bin").write_text(content)
        names.append(bundle._model(folder).name)
    assert len(set(names)) == len(said) == 5
    assert names[1] == names[2]
    assert {file.name for file in archive.folder().iterdir()} == set(names[2:])
