"""What a job brings along."""

import tarfile

from cluster_serving.launcher.config import file, repository
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.shipping.bundle import _needs_of_all, load
from tests.support.fixtures.handled import NO_NEGATIVES, write


def test_a_job_of_several_models_brings_all_of_them_and_what_each_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "home"))
    root = tmp_path / "models"
    for name in ("code", "graph/3", "broken"):
        (root / name).mkdir(parents=True)
    write(root / "code", NO_NEGATIVES)
    (root / "graph" / "3" / "model.onnx").touch()
    (root / "broken" / "model.onnx").touch()
    (root / "broken" / "handler.py").write_text("import nothing")
    (root / "broken" / "config.yaml").write_text("redisUrl: elsewhere")
    (tmp_path / "config.yaml").write_text("modelPath: models")
    config = file.read(tmp_path / "config.yaml")
    options = repository.with_models(config, job_options(config, "start"), repository.find(config).names)
    extras, requirements = _needs_of_all(options)
    assert extras == {"job"} and requirements == ["cluster-serving[onnx]"]
    loaded = load("model", options)
    assert loaded.options.model.path == loaded.model.stem
    paths = {one.name: one.model.path for one in loaded.options.hosted}
    assert paths == {name.partition("/")[0]: f"{loaded.model.stem}/{name}" for name in ("broken", "code", "graph/3")}
    with tarfile.open(loaded.model) as archive:
        assert {"code/handler.py", "broken/model.onnx"} < {*archive.getnames()}
