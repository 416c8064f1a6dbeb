"""Decisions on layouts, with a model that is measured in processes of its own."""

import shutil

import pytest

from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.jobs import model_copy
from cluster_serving.launcher.jobs.layout.choice import Layout
from cluster_serving.launcher.jobs.layout.decision import Decider
from cluster_serving.launcher.jobs.layout.measuring import NotMeasured
from cluster_serving.launcher.jobs.layout.quiet import Surroundings, told
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.host import cgroup
from tests.support.fixtures.predictor import save_doubling

HANDLER = """
class Handler:
    {inputs}
    def predict(self, batch):
        {body}
"""


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    save_doubling(folder, 4)
    return folder


@pytest.fixture
def decider(tmp_path, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(Surroundings, "disturbance", lambda self: "")

    def decider(folder, **keys):
        config = Config.model_validate({"modelPath": str(folder)} | keys)
        return Decider(config, job_options(config, "test"), ("", ""))

    return decider


def handler(folder, body, inputs='inputs = {"x": "float32[2]"}'):
    folder.mkdir()
    (folder / "handler.py").write_text(HANDLER.format(inputs=inputs, body=body))
    return folder


def usual():
    return Layout(1, cgroup.cores(), 32)


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_measured_layout_is_kept_by_what_it_depends_on(decider, model, tmp_path, said, mode):
    layout = decider(model, executionMode=mode).decide()
    assert len(said) == 1
    assert f"batches up to {layout.batch} (" in decider(model, executionMode=mode).described(layout)
    copy = shutil.copytree(model, tmp_path / "copy")
    assert decider(copy, executionMode=mode).decide() == layout
    assert len(said) == 1
    (copy / "labels.txt").write_text("one\n")
    decider(copy, executionMode=mode).decide()
    assert len(said) == 2


def test_a_start_which_copies_the_model_takes_the_figures_of_tune(decider, model, tmp_path, said):
    tuned = decider(model).tune(1)
    config = Config.model_validate({"modelPath": str(model)})
    copied = model_copy.keep(tmp_path / "home", config, job_options(config, "start"))
    assert copied.model.path != str(model)
    started = Decider(config, copied, ("", ""))
    assert started.decide() == tuned.layout
    assert started.described(tuned.layout) == tuned.text
    assert not said


def test_what_was_measured_on_a_busy_machine_is_provisional_and_measured_again(decider, model, said, monkeypatch):
    monkeypatch.setattr(Surroundings, "disturbance", lambda self: told(1.2, 0.0, 2))
    layout = decider(model).decide()
    text = "; provisional, as other programs used 1.2 of 2 cores: the next start measures again"
    assert decider(model).described(layout).endswith(text)
    monkeypatch.setattr(Surroundings, "disturbance", lambda self: "")
    layout = decider(model).decide()
    assert len(said) == 2
    assert "provisional" not in decider(model).described(layout)
    decider(model).decide()
    assert len(said) == 2


def test_a_machine_that_is_always_busy_is_measured_three_times(decider, model, said, monkeypatch):
    monkeypatch.setattr(Surroundings, "disturbance", lambda self: told(1.2, 0.0, 2))
    for _ in range(5):
        layout = decider(model).decide()
    assert len(said) == 3
    text = "; measured while other programs used 1.2 of 2 cores: cluster-serving-cli tune measures again"
    assert decider(model).described(layout).endswith(text)


def test_the_figures_of_tune_stay_also_on_a_busy_machine(decider, model, said, monkeypatch):
    monkeypatch.setattr(Surroundings, "disturbance", lambda self: told(1.2, 0.0, 2))
    tuned = decider(model).tune(1)
    assert decider(model).decide() == tuned.layout
    assert not said


@pytest.mark.parametrize(
    ("used", "stolen", "cores", "text"),
    [
        (0.1, 0.01, 2, ""),
        (1.2, 0.5, 2, "other programs used 1.2 of 2 cores"),
        (2.0, 0.0, 64, ""),
        (0.0, 0.05, 2, "the hypervisor took 5% of the time"),
    ],
)
def test_a_machine_is_quiet_if_others_use_little_of_it(used, stolen, cores, text):
    assert told(used, stolen, cores) == text


def test_a_model_that_its_engine_refuses_ends_the_start_before_a_slot_tries_it(decider, model):
    (model / "model.xml").write_text("<net/>")
    for asked in (Decider.decide, lambda it: it.tune(1)):
        with pytest.raises(ModelError, match=f"cannot load.*{model}"):
            asked(decider(model))


def test_a_handler_that_cannot_be_loaded_is_left_to_the_slots(decider, model, said):
    (model / "handler.py").write_text("import nowhere")
    for _ in range(2):
        assert decider(model).decide() == usual()
    assert sum("cannot be imported" in message for message in said) == 2
    with pytest.raises(NotMeasured, match="cannot be imported"):
        decider(model).tune(1)


def test_values_of_the_configuration_are_obeyed(decider, model, said):
    everything = {"modelParallelism": 2, "threadPerModel": 3, "maxBatchSize": 5}
    assert decider(model, **everything).decide() == Layout(2, 3, 5)
    assert not said
    assert decider(model, modelParallelism=2, threadPerModel=1).decide().copies == 2
    assert decider(model, maxBatchSize=7).decide().batch == 7


def test_a_job_that_runs_keeps_its_layout(decider, model, said):
    keys = {"modelPath": str(model), "modelParallelism": 3, "threadPerModel": 2, "maxBatchSize": 9}
    before = job_options(Config.model_validate(keys), "before")
    assert decider(model, maxBatchSize=8).decide(before) == Layout(3, 2, 8)
    assert "cluster-serving-cli tune" in said[0]


def test_a_change_of_a_running_job_measures_what_is_provisional_again(decider, model, said, monkeypatch):
    monkeypatch.setattr(Surroundings, "disturbance", lambda self: told(1.2, 0.0, 2))
    layout = decider(model).decide()
    monkeypatch.setattr(Surroundings, "disturbance", lambda self: "")
    keys = {"modelPath": str(model), "modelParallelism": layout.copies, "threadPerModel": 1, "maxBatchSize": 9}
    decider(model).decide(job_options(Config.model_validate(keys), "before"))
    assert [line.startswith("Measuring the layout") for line in said] == [True, True]
    assert "provisional" not in decider(model).described()


@pytest.mark.parametrize(
    ("body", "inputs", "reason"),
    [
        ("return batch", "", "does not declare its inputs"),
        ("return batch", 'inputs = {"x": "float32[?]"}', "sizes of an input are not known: x: float32"),
        ("raise ValueError('no zeros')", 'inputs = {"x": "float32[2]"}', "no zeros"),
        ("yield batch", 'inputs = {"x": "float32[2]"}', "answers in pieces"),
    ],
)
def test_what_cannot_be_measured_has_the_usual_layout_and_is_tried_once(decider, tmp_path, said, body, inputs, reason):
    folder = handler(tmp_path / "model", body, inputs)
    assert decider(folder).decide() == usual()
    assert any(reason in message for message in said)
    count = len(said)
    assert decider(folder).decide() == usual()
    assert len(said) == count


def test_a_process_that_dies_fails_no_start(decider, tmp_path, said):
    folder = handler(tmp_path / "model", "import os; os._exit(7)")
    assert decider(folder).decide() == usual()
    assert any("exit code 7" in message for message in said)


def test_a_handler_is_measured_on_the_inputs_that_it_declares(decider, tmp_path):
    body = "import time; time.sleep(0.005); return {'y': batch['x']}"
    figures = decider(handler(tmp_path / "model", body)).tune(1).figures
    assert {figure.batch for figure in figures} >= {1, 2, 4}


def test_images_and_texts_are_measured_as_such(decider, tmp_path):
    kinds = 'inputs = {"photo": "image", "note": "str"}'
    body = "assert batch['photo'].shape[1:] == (48, 64, 3) and batch['note'][0]; return {'y': [1] * len(batch['note'])}"
    assert decider(handler(tmp_path / "model", body, kinds), imageResize="64,48").tune(1).figures
