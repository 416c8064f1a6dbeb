import io
import stat
import struct
import tarfile
import zipfile

import pytest

from cluster_serving.job.remote.url import ARCHIVES
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.host import archive

FILES = {"model.onnx": b"network", "variables/part": b"weights"}


@pytest.fixture
def unpack(tmp_path):
    def unpack(path):
        target = tmp_path / "unpacked"
        archive.unpack(path, "".join(path.suffixes), target, "the archive")
        return {str(file.relative_to(target)): file.read_bytes() for file in target.rglob("*") if file.is_file()}

    return unpack


@pytest.mark.parametrize("ending", ARCHIVES)
def test_every_kind_of_archive(tmp_path, pack, unpack, ending):
    path = tmp_path / f"model{ending}"
    pack(path, FILES)
    assert unpack(path) == FILES


def test_archives_of_the_programs_that_people_use(tmp_path, unpack):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.mkdir("model")
        packed.writestr("model/model.onnx", b"network")
    assert unpack(path) == {"model/model.onnx": b"network"}
    assert archive.root(tmp_path / "unpacked") == tmp_path / "unpacked" / "model"


def test_the_model_is_at_the_top_or_in_the_only_folder(tmp_path):
    (tmp_path / "__MACOSX").mkdir()
    (tmp_path / "model").mkdir()
    assert archive.root(tmp_path) == tmp_path / "model"
    (tmp_path / "saved_model.pb").touch()
    assert archive.root(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil"])
@pytest.mark.parametrize("ending", ARCHIVES)
def test_a_file_outside_of_the_archive_is_not_written(tmp_path, pack, unpack, ending, name):
    path = tmp_path / f"model{ending}"
    pack(path, FILES | {name: b"evil"})
    with pytest.raises(ModelError, match="lies outside"):
        unpack(path)
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_what_is_neither_file_nor_folder_is_refused(tmp_path, unpack, kind):
    path = tmp_path / "model.tar"
    with tarfile.open(path, "w") as packed:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = kind, "/etc"
        packed.addfile(link)
        packed.addfile(tarfile.TarInfo("link/file"), io.BytesIO())
    with pytest.raises(ModelError, match="'link' is neither file nor folder; pack files in place of links"):
        unpack(path)


def test_a_link_in_a_zip_is_refused(tmp_path, unpack):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as packed:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "/etc/passwd")
    with pytest.raises(ModelError, match="neither file nor folder"):
        unpack(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_entry_cannot_replace_another(tmp_path, unpack):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("model.onnx", b"one")
        packed.writestr("model.onnx", b"two")
    with pytest.raises(ModelError, match="FileExistsError"):
        unpack(path)


@pytest.mark.parametrize("ending", ARCHIVES)
def test_a_damaged_archive(tmp_path, pack, unpack, ending):
    path = tmp_path / f"model{ending}"
    pack(path, {"model.onnx": bytes(range(256)) * 100})
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match="the archive cannot be unpacked"):
        unpack(path)


def test_a_changed_byte_in_a_zip(tmp_path, pack, unpack):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("model.onnx", b"network")
    path.write_bytes(path.read_bytes().replace(b"network", b"netwerk"))
    with pytest.raises(ModelError, match="CRC"):
        unpack(path)


def test_a_zip_that_lies_about_its_size(tmp_path, pack, unpack):
    path = tmp_path / "model.zip"
    pack(path, {"model.onnx": bytes(1 << 20)})
    path.write_bytes(path.read_bytes().replace(struct.pack("<L", 1 << 20), struct.pack("<L", 10)))
    with pytest.raises(ModelError, match="cannot be unpacked"):
        unpack(path)
    assert (tmp_path / "unpacked" / "model.onnx").stat().st_size <= 10


def test_limits(tmp_path, pack, unpack, monkeypatch):
    path = tmp_path / "model.tar"
    pack(path, FILES)
    monkeypatch.setattr(archive, "MAX_ENTRIES", 1)
    with pytest.raises(ModelError, match="more than 1 files or 100 GiB"):
        unpack(path)
