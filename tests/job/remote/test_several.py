"""An archive of several models on a web server, served by running slots."""

from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.jobs.store import opened
from cluster_serving.launcher.rollout import model_change
from cluster_serving.launcher.rollout.model_watch import SETTLED_S
from cluster_serving.launcher.rollout.models_watch import ModelsWatch
from tests.support.fixtures.running_slot import RunningJob


def _files(**factors):
    code = "class Handler:\n    inputs = outputs = {'x': 'float32'}\n    def predict(self, batch):\n"
    texts = {name: f"{code}        return {{'x': batch['x'] * {factor}}}\n" for name, factor in factors.items()}
    return {
        **{f"shop/{name}/handler.py": text.encode() for name, text in texts.items()},
        "shop/coded/config.yaml": b"allowPickle: true",
        "shop/coded/model.onnx": b"none",
        "shop/broken/model.onnx": b"none",
        "shop/notes/readme.txt": b"none",
    }


def test_an_archive_is_served_and_changed_like_its_folder(server, site, pack, versions, redis_server, tmp_path, ask):
    pack(site / "shop.zip", _files(double=2, triple=3))
    address = f"{server.url}/shop.zip"
    settings = {"jobName": "shop", "modelPath": address, "handler": "handler:Handler", "startTimeout": 60}
    job = RunningJob(redis_server, tmp_path, **settings)

    job.start()
    try:
        with job.place() as place:
            assert place.models.names == ("broken", "coded", "double", "triple")
            assert place.models.ignored == ("notes (it holds no model)",)
            assert f"{address}!/broken/model.onnx is not" in place.store.models()["broken"].error
            assert f"{address}/coded/config.yaml, line 1: allowPickle" in place.store.models()["coded"].error
        assert [ask(model) for model in ("double", "triple")] == [2, 3]
        # The archive is fetched once, and once more after a change: by the command, for all slots of this machine.
        assert server.fetched == ["/shop.zip"]
        pack(site / "shop.zip", _files(double=2, triple=33))
        with opened(config_file.read(tmp_path / "config.yaml")) as store:
            watch, config = ModelsWatch(), config_file.read(tmp_path / "config.yaml")
            assert [watch.due(config, store, store.models(), now) for now in (0.0, SETTLED_S)] == [[], ["triple"]]
        with job.place() as place:
            assert model_change.load_in(place, "triple")[0].version == "2"
        assert [ask(model) for model in ("double", "triple")] == [2, 33]
        assert (len(server.fetched), len(versions())) == (2, 2)
    finally:
        job.stop()
