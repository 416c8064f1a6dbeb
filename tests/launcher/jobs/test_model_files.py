"""Fingerprints of the files of a model."""

import os
import shutil

import pytest

from cluster_serving.launcher.jobs.model_files import fingerprint


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "variables").mkdir()
    (tmp_path / "saved_model.pb").write_text("graph")
    (tmp_path / "variables" / "data").write_text("weights")
    return tmp_path


def rewrite(file):
    """Write other content of equal size and time into a file."""
    times = file.stat()
    file.write_text("WEIGHTS")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def replace(file):
    """Put another file of equal size and time into the place of a file."""
    other = shutil.copy2(file, file.with_name(".other"))
    os.replace(other, file)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "variables" / "data").write_text("other weights"),
        lambda folder: (folder / "variables" / "data").unlink(),
        lambda folder: (folder / "variables" / "index").touch(),
        lambda folder: os.utime(folder / "saved_model.pb", (1, 1)),
        lambda folder: (folder / "saved_model.pb").rename(folder / "other.pb"),
        lambda folder: rewrite(folder / "variables" / "data"),
        lambda folder: replace(folder / "variables" / "data"),
    ],
)
def test_each_change_of_a_file_is_seen(folder, change):
    before = fingerprint(folder)
    assert fingerprint(folder) == before
    assert fingerprint(folder, "2") != before
    change(folder)
    assert fingerprint(folder) != before


def test_files_that_are_no_part_of_a_model_do_not_count(folder):
    before = fingerprint(folder)
    (folder / "__pycache__").mkdir()
    for name in ("config.yaml", "cluster-serving.log", "cluster-serving.log.1", ".partial", "__pycache__/handler.pyc"):
        (folder / name).touch()
    assert fingerprint(folder) == before
    assert fingerprint(folder / "none") == ""


@pytest.mark.parametrize("link", ["saved_model.pb", "variables"])
def test_the_swap_of_a_link_as_in_a_volume_of_kubernetes_is_seen(tmp_path, link):
    for number in (1, 2):
        data = tmp_path / f"..data-{number}" / "variables"
        data.mkdir(parents=True)
        for file in (data / "index", data.parent / "saved_model.pb"):
            file.write_text("same")
            os.utime(file, (1, 1))
    (tmp_path / "..data").symlink_to("..data-1")
    (tmp_path / link).symlink_to(f"..data/{link}")
    before = fingerprint(tmp_path)
    (tmp_path / "..next").symlink_to("..data-2")
    (tmp_path / "..next").rename(tmp_path / "..data")
    assert before and fingerprint(tmp_path) not in ("", before)


def test_a_link_that_leads_back_ends_the_look(folder):
    before = fingerprint(folder)
    (folder / "variables" / "back").symlink_to(folder)
    assert fingerprint(folder) == before
