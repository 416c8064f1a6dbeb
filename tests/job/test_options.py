"""Options of a job, as JSON."""

import json
from dataclasses import fields, replace

import pytest

from cluster_serving.job.options import (
    BatchOptions,
    HostedOptions,
    ImageOptions,
    JobOptions,
    ModelOptions,
    RedisOptions,
)
from cluster_serving.protocol.record_key import RecordKey

STAGES = (("sample", 0.5), ("to", "/log"), ("without", ("uri",)), ("on", True))
OPTIONS = JobOptions(
    submission="start-1",
    model=ModelOptions(
        "/m",
        2,
        "float32",
        ("a",),
        ("b", "c"),
        ((1, 2), ()),
        ("x",),
        -999.0,
        True,
        True,
        "handler:A",
        1.5,
        (("a", 0.5),),
        "none",
        5,
        6,
        "query: ",
        "mean",
        False,
        ("2_Dense",),
        True,
        "gpu",
        3,
        "models/m",
    ),
    redis=RedisOptions("rediss://:pass@h:1/2", "job", 1, 2, 3, 4, 5, 6, "/folder", 7, "v", True, True, STAGES),
    batch=BatchOptions(1, 2, False, True, 3),
    image=ImageOptions(
        (3, 4), 2, "box", (1, 2), 5, "RGB", "CHW", 0.5, (1.0, 2.0), (4.0,), RecordKey("secret text", "its salt", 128)
    ),
    model_parallelism=7,
    execution_mode="process",
    post_processing="topN(1)",
    request_deadline_ms=8,
)
OPTIONS = replace(
    OPTIONS,
    hosted=(
        HostedOptions("a", OPTIONS.model, OPTIONS.batch, OPTIONS.image, "topN(2)", 20, "2", True, "it cannot be read"),
    ),
)


def defaults(options):
    return [f.name for f in fields(options) if getattr(options, f.name) == f.default]


def test_every_field_survives():
    """Each option of `OPTIONS` differs from its default, so that one that is forgotten is noticed."""
    parts = (OPTIONS, OPTIONS.model, OPTIONS.redis, OPTIONS.batch, OPTIONS.image)
    assert not [name for part in parts for name in defaults(part)]
    assert JobOptions.from_json(OPTIONS.to_json()) == OPTIONS


def test_a_hosted_model_has_the_options_of_the_job_but_for_its_own():
    one = replace(OPTIONS.hosted[0], name="a", version="7")
    made = replace(OPTIONS, hosted=(one,)).of_hosted(one)
    assert (made.redis.job, made.redis.version, made.hosted) == ("a", "7", ())
    assert replace(made.redis, job=OPTIONS.redis.job, version=OPTIONS.redis.version) == OPTIONS.redis


def test_a_slot_gets_its_index():
    options = OPTIONS.in_slot(5)
    assert options.model.slot == 5
    assert options.in_slot(3) == OPTIONS


def test_the_least_survives():
    least = JobOptions("start-1", ModelOptions("/m"), RedisOptions("redis://h"))
    assert JobOptions.from_json(least.to_json()) == least


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda raw: raw["redis"].pop("max_deliveries"), "redis.max_deliveries"),
        (lambda raw: raw.pop("model_parallelism"), "model_parallelism"),
        (lambda raw: raw["model"].update(invented=1), "model.invented"),
        (lambda raw: raw["image"]["record_key"].pop("bits"), "image.record_key.bits"),
        (lambda raw: raw["batch"].update(max_batch_size="1"), "batch.max_batch_size"),
        (lambda raw: raw["batch"].update(max_batch_size="one"), "batch.max_batch_size"),
        (lambda raw: raw["redis"].pop("job"), "redis.job"),
        (lambda raw: raw.pop("submission"), "submission"),
        (lambda raw: raw["redis"].pop("url"), "redis.url"),
        (lambda raw: raw["redis"].update(url=["rediss://:pass@h"]), "redis.url"),
        (lambda raw: raw["image"]["record_key"].update(salt=""), "image.record_key"),
    ],
)
def test_a_missing_unknown_or_wrong_field_is_named_and_no_secret_is(change, named):
    raw = json.loads(OPTIONS.to_json())
    change(raw)
    with pytest.raises(ValueError, match=named) as error:
        JobOptions.from_json(json.dumps(raw))
    assert "pass" not in str(error.value)
    assert "secret text" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/home/copies/shop@1/a", "/home/copies/shop@1/a/net.onnx is damaged: no /home/copies/shop@1/a/x"),
        ("model-1f/a", "/flink/python-archives/model-1f/a/net.onnx is damaged: no /other/model-1f/a/x"),
        ("model-1f.tar/a", "model-1f.tar/a/net.onnx is damaged: no /yarn/container_1/model-1f.tar/a/x"),
    ],
)
def test_messages_name_a_model_as_it_is_configured_wherever_its_copy_is(path, told):
    model = ModelOptions(path, configured=r"/srv/\models/a")
    assert model.as_configured(told) == r"/srv/\models/a/net.onnx is damaged: no /srv/\models/a/x"
    assert ModelOptions(path).as_configured(told) == told
