"""Digests of models."""

import os
import shutil
from dataclasses import replace

import pytest

from cluster_serving.job.models.content import Content
from cluster_serving.job.options import ModelOptions
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def options(tmp_path):
    folder = tmp_path / "model"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_text("graph")
    (folder / "variables" / "data").write_text("weights")
    return ModelOptions(str(folder))


def test_a_copy_elsewhere_has_the_digest_and_another_content_has_not(options, tmp_path):
    digest = Content(options).digest()
    assert len(digest) == 64
    copy = replace(options, path=str(tmp_path / "copy"), slot=3, thread_per_model=4)
    shutil.copytree(options.path, copy.path)
    # Neither is a part of the model.
    (tmp_path / "copy" / "config.yaml").write_text("jobName: other")
    (tmp_path / "copy" / "cluster-serving.log").write_text("started")
    assert Content(copy).digest() == digest
    (tmp_path / "copy" / "variables" / "data").write_text("WEIGHTS")
    assert Content(copy).digest() not in (digest, "")
    for other in (replace(options, device="auto"), replace(options, inference_precision="float32")):
        assert Content(other).digest() not in (digest, "")


def test_files_that_have_changed_since_they_were_loaded_have_no_digest(options, tmp_path):
    content = Content(options)
    (tmp_path / "model" / "saved_model.pb").write_text("another graph")
    assert content.digest() == ""
    (tmp_path / "model" / "saved_model.pb").unlink()
    assert content.digest() == ""


def test_a_digest_may_come_later(options):
    content = Content(options)
    wait_until(content.digest_soon)
    assert content.digest_soon() == Content(options).digest()


def test_what_is_no_file_has_no_part_in_the_digest(options, tmp_path):
    digest = Content(options).digest()
    (tmp_path / "model" / "link").symlink_to("nowhere")
    (tmp_path / "model" / "loop").symlink_to(tmp_path / "model")
    os.mkfifo(tmp_path / "model" / "pipe")
    assert Content(options).digest() == digest
