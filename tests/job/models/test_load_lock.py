"""Loads of models in several threads of this process, as the slots of a TaskManager load them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from cluster_serving.job.models import load_lock
from cluster_serving.job.options import ModelOptions
from cluster_serving.job.predictor import Predictor
from tests.support.fixtures.handled import write
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

SLOTS = 8


def side_by_side(function):
    """Call a function in as many threads as there are slots, all at once; return its results by slot."""
    start = threading.Barrier(SLOTS)

    def run(slot):
        start.wait(60)
        return function(slot)

    with ThreadPoolExecutor(SLOTS) as threads:
        return list(threads.map(run, range(SLOTS)))


def answers(folder, **options):
    """Return the answer of each slot to the same record."""

    def answer(slot):
        with Predictor(ModelOptions(str(folder), slot=slot, **options)) as predictor:
            return predictor.predict([{"x": np.ones(4, "float32")}])[0]

    return side_by_side(answer)


class Sum(torch.nn.Module):
    """Stands for the model of README."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1, bias=False)
        torch.nn.init.ones_(self.layer.weight)

    def forward(self, x):
        return self.layer(x)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    model_zoo.save_exported(folder, Sum(), torch.zeros(2, 4), dynamic_shapes=({0: torch.export.Dim("batch")},))
    return folder


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_slots_load_an_exported_program_at_once(exported, timeout):
    found = answers(exported, inference_timeout_s=timeout)
    assert [answer["output"].tolist() for answer in found] == [[4.0]] * SLOTS


@pytest.mark.parametrize(
    "code",
    [
        """
        class Handler:
            def load(self, context):
                self.model = context.load("model.pt2")

            def predict(self, batch):
                return self.model(batch)
        """,
        """
        import torch

        class Handler:
            def load(self, context):
                self.model = torch.export.load(context.folder / "model.pt2").module()

            def predict(self, batch):
                return {"output": self.model(torch.as_tensor(batch["x"])).detach().numpy()}
        """,
    ],
    ids=["by the context", "by its own code"],
)
def test_handlers_load_an_exported_program_at_once(exported, tmp_path, code):
    (tmp_path / "model.pt2").symlink_to(exported / "model.pt2")
    write(tmp_path, code)
    assert [answer["output"].tolist() for answer in answers(tmp_path)] == [[4.0]] * SLOTS


@pytest.mark.parametrize("names", [("", ""), ("one", "other")])
def test_loads_that_share_no_lock_run_side_by_side(names):
    both = threading.Barrier(2)

    def load(name):
        with load_lock.held(name, ModelOptions("/model")):
            both.wait(60)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(load, names))


def test_a_load_that_waits_for_long_names_the_one_that_goes_on(caplog, monkeypatch):
    monkeypatch.setattr(load_lock, "_PATIENCE_S", 0.01)

    def load():
        with load_lock.held("test", ModelOptions("/second", slot=1)):
            pass

    with load_lock.held("test", ModelOptions("/copy", slot=3, configured="first")):
        thread = threading.Thread(target=load)
        thread.start()
        wait_until(lambda: caplog.records)
    thread.join(60)
    assert not thread.is_alive()
    text = caplog.messages[0]
    assert text.startswith("the model /second of slot 1 has waited for")
    assert "the model first of slot 3 has been loading for" in text


def test_a_load_that_fails_lets_the_others_go_on():
    with pytest.raises(RuntimeError), load_lock.held("test", ModelOptions("/model")):
        raise RuntimeError("damaged")
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: load_lock.held("test", ModelOptions("/model")).__enter__()).result(60) is None


def test_a_load_may_hold_its_lock_again():
    with load_lock.held("test", ModelOptions("/model")), load_lock.held("test", ModelOptions("/model/inner")):
        pass
