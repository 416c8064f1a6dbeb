"""A folder of models: what is served of it, with which keys, and what is refused."""

import pytest
import yaml

from cluster_serving.launcher.config import file, repository
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.lifecycle import checked
from cluster_serving.settings.errors import SettingsError


@pytest.fixture
def root(tmp_path):
    """The folder of models of the configuration that `read` reads."""
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def read(tmp_path, root):
    """Reads a configuration with these keys."""

    def make(**keys):
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"modelPath": "models", "jobName": "shop", **keys}))
        return file.read(tmp_path / "config.yaml")

    return make


def put(root, name, config=""):
    """Put a file of a model, and a configuration, into a subfolder."""
    (root / name).mkdir(parents=True)
    (root / name / "model.onnx").touch()
    if config:
        (root / name / "config.yaml").write_text(config)


def options_of(config):
    names = repository.find(config).names
    return {one.name: one for one in repository.with_models(config, job_options(config, "start"), names).hosted}


def test_each_subfolder_that_holds_a_model_is_one_and_the_others_are_named(root, read):
    put(root, "b")
    put(root, "a")
    put(root, "c/2")
    put(root, "two words")
    put(root, ".hidden")
    put(root, "shop")
    (root / "handler").mkdir()
    (root / "handler" / "handler.py").touch()
    (root / "notes").mkdir()
    (root / "notes" / "readme.txt").touch()
    (root / "readme.txt").touch()
    found = repository.find(read())
    assert found.names == ("a", "b", "c", "handler")
    assert found.ignored == (
        "notes (it holds no model)",
        "two words (no name of a model: letters, digits, '_', '-' and '.', up to 200)",
        "shop (the name of the job: rename the subfolder, or set another jobName)",
    )


@pytest.mark.parametrize("also", ["model.onnx", "handler.py", "3/model.onnx"])
def test_a_folder_with_a_model_handler_or_version_of_its_own_holds_one_model(root, read, also):
    put(root, "a")
    (root / also).parent.mkdir(exist_ok=True)
    (root / also).touch()
    assert repository.find(read()) is None


def test_a_folder_without_models_an_address_and_a_named_handler_are_none(root, read):
    (root / "empty").mkdir()
    assert repository.find(read()) is None
    put(root, "a")
    assert repository.find(read()).names == ("a",)
    assert repository.find(read(handler="module:Class")) is None
    assert repository.find(read(modelVersion=1)) is None
    assert repository.find(read(modelPath="s3://bucket/models")) is None


def test_a_model_has_the_keys_of_the_job_but_for_those_of_its_own(root, read):
    put(root, "a", "maxBatchSize: 4\npostProcessing: topN(3)\nimageResize: [8, 8]\n")
    put(root, "b/1")
    put(root, "b/2")
    put(root, "c/7", "")
    (root / "c" / "config.yaml").write_text("modelVersion: 7\n")
    config = read(maxBatchSize=16, batchTimeout=5, postProcessing="topN(1)")
    found = options_of(config)
    assert [found[name].batch.max_batch_size for name in "abc"] == [4, 16, 16]
    assert [found[name].post_processing for name in "abc"] == ["topN(3)", "topN(1)", "topN(1)"]
    assert {one.batch.timeout_ms for one in found.values()} == {5}
    assert [(found[name].version, found[name].numbered) for name in "abc"] == [("1", False), ("2", True), ("7", True)]
    assert [found[name].model.path for name in "abc"] == [str(root / path) for path in ("a", "b/2", "c/7")]
    assert not any(one.refused for one in found.values())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("allowPickle: true", "line 1: allowPickle belongs to the job, not to one of its models"),
        ("jobName: other", "line 1: jobName belongs to the job"),
        ("maxBatchSize: 4\nredisUrl: other:6379", "line 2: redisUrl belongs to the job"),
        ("maxBatchSize: none", "maxBatchSize"),
        ("batchSizes: 4", "line 1: batchSizes is not a key of this file"),
        ("modelVersion: 3", "modelVersion is 3"),
    ],
)
def test_a_model_with_wrong_keys_is_refused_and_harms_no_other(root, read, text, reason):
    put(root, "a", text)
    put(root, "b")
    found = options_of(read())
    assert reason in found["a"].refused and str(root / "a") in found["a"].refused
    assert not found["b"].refused


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("coreNumberPerMachine", 2, "coreNumberPerMachine: 2, and no layout is measured for a job that serves several"),
        ("jobName", "a", "jobName is a, which is also the name of a model; set another jobName"),
    ],
)
def test_what_a_job_of_several_models_cannot_do_is_refused_by_its_key(root, read, key, value, reason):
    put(root, "a")
    config = read(**{key: value})
    assert repository.problem(config, repository.find(config)).startswith(reason)


@pytest.mark.parametrize("target", ["remote", "yarn-application"])
@pytest.mark.parametrize(("ship", "is_refused"), [("model", True), ("nothing", False)])
def test_models_that_travel_with_their_job_are_not_watched(root, read, target, ship, is_refused):
    put(root, "a")
    config = read(**{"flink.target": target, "flink.ship": ship, "watchModel": True})
    assert repository.travels(config) == is_refused
    assert ("watchModel: true, and" in repository.problem(config, repository.find(config))) == is_refused


def test_on_a_redis_cluster_the_models_of_a_job_have_its_braces_in_their_names(root, read):
    for name in ("{shop}a", "b", "{other}c", "{shop}"):
        put(root, name)
    config = read(redisUrl="redis+cluster://localhost:7000", jobName="{shop}-eu")
    found = repository.find(config)
    assert (found.names, found.ignored, found.misplaced) == (("{shop}", "{shop}a"), (), ("b", "{other}c"))
    told = repository.misplacement(config, found.misplaced)
    assert "the keys of the model b (as of {other}c) would be in another hash slot" in told
    assert "rename its subfolder to {shop}b," in told
    assert "rename its subfolder to {shop}c," in repository.misplacement(config, found.misplaced[1:])
    with pytest.raises(LaunchError, match="rename its subfolder to {shop}b,"):
        checked(config)
    # On a single Redis, any name will do.
    assert repository.find(read(jobName="{shop}-eu")).names == ("b", "{other}c", "{shop}", "{shop}a")


def test_a_folder_whose_models_all_lie_elsewhere_in_the_redis_cluster_is_a_folder_of_models(root, read):
    put(root, "a")
    config = read(redisUrl="redis+cluster://localhost:7000", jobName="{shop}")
    with pytest.raises(LaunchError, match="rename its subfolder to {shop}a,"):
        checked(config)
    with pytest.raises(SettingsError, match="holds several models: name one, such as .*models/a"):
        repository.refuse(config, "name one, such as {model}")


def test_one_model_of_the_folder_is_tried_with_its_own_keys(root, read):
    put(root, "a", "maxBatchSize: 4")
    put(root.parent / "other", "a", "maxBatchSize: 5")
    config = read(maxBatchSize=16)
    assert repository.model_in(config, root / "a").max_batch_size == 4
    assert repository.model_in(config, root.parent / "other" / "a").max_batch_size == 16
    with pytest.raises(SettingsError, match=r"models holds several models: name one, such as .*models/a$"):
        repository.refuse(config, "name one, such as {model}")
