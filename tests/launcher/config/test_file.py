import re
from dataclasses import replace
from pathlib import Path

import pytest

from cluster_serving.job.options import JobOptions, ModelOptions, RedisOptions
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.job_options import job_options, sized_for
from cluster_serving.launcher.config.model import with_all_keys
from cluster_serving.protocol.host import cgroup
from cluster_serving.protocol.record_key import RecordKey, published_key
from cluster_serving.settings.errors import SettingsError

ROOT = Path(__file__).parents[3]

_REDIS = (
    "host:port, redis://user:password@host:port/db, rediss://... for TLS, redis+sentinel://host:port,.../service, "
    "or redis+cluster://host:port,... with a jobName in braces, such as '{serving_stream}'"
)


def test_the_file_in_the_repository_is_the_generated_one():
    assert (ROOT / "config.yaml").read_text("utf8") == config_file.template()


def test_the_generated_file_has_every_key_and_sets_only_the_model(read, tmp_path):
    text = config_file.template()
    assert read(text) == with_all_keys().model_validate({"modelPath": str(tmp_path / "model")})
    fields = with_all_keys().model_fields.values()
    active = [line for line in text.splitlines() if line and not line.strip().startswith("#")]
    sections = dict.fromkeys(field.alias.partition(".")[0] for field in fields if "." in field.alias)
    assert active[0] == "modelPath: model" and set(active[1:]) == {f"{section}:" for section in sections}
    for field in fields:
        section, _, key = field.alias.rpartition(".")
        assert f"\n{'  ' * bool(section)}{'# ' * (key != 'modelPath')}{key}:" in text


def test_the_defaults_in_the_generated_file_are_those_that_apply(read):
    settings = [re.sub("^( *)# (?=[a-zA-Z]+:)", r"\1", line) for line in config_file.template().splitlines()]
    aliases = [field.alias for field in with_all_keys().model_fields.values()]
    keys = {part for alias in aliases for part in alias.split(".")}
    uncommented = "\n".join(line for line in settings if line.strip().partition(":")[0] in keys)
    assert "\n  ship: " in uncommented
    assert read(uncommented) == read("modelPath: model")


def test_the_keys_of_a_section_are_named_with_their_line(read):
    with pytest.raises(SettingsError, match=r"line 3: flink.ship is 'all' \(text\); expected environment, packages"):
        read("modelPath: m\nflink:\n  ship: all")
    with pytest.raises(SettingsError, match=r"line 3: flink.targt is not a key .* did you mean flink.target\?"):
        read("modelPath: m\nflink:\n  targt: remote")


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("autoscale: {min: 2, max: 8}", "autoscale.min is 2 .* from 1 to modelParallelism, the number of slots at"),
        ("modelParallelism: 2\nautoscale: {max: 1}", "autoscale.max is 1 .* at least modelParallelism"),
        ("coreNumberPerMachine: 4\nautoscale: {max: 4}", "autoscale.max is 4 .* no coreNumberPerMachine beside it"),
        ("autoscale: {targetQueueWait: 50}", "autoscale.targetQueueWait is 50 .* with autoscale.max"),
        (
            "greedyBatching: false\nbatchTimeout: 100\nautoscale: {max: 4}",
            "autoscale.targetQueueWait is missing; expected .* more than batchTimeout",
        ),
        ("autoscale: 4", "autoscale is 4; expected a mapping with autoscale.max, autoscale.min"),
    ],
)
def test_slots_follow_the_load_between_possible_limits(read, keys, problem):
    with pytest.raises(SettingsError, match=problem):
        read(f"modelPath: m\n{keys}")


def test_flink_elsewhere_gets_everything_by_default(read):
    assert (read("modelPath: m").target, read("modelPath: m").ships) == ("local", "nothing")
    elsewhere = read("modelPath: m\nflinkRestUrl: flink.example:8081")
    assert (elsewhere.target, elsewhere.ships) == ("remote", "environment")


def test_keys_are_read_in_any_case(read):
    config = read("MODELPATH: /m\njobname: a\nThreadPerModel: 3")
    assert (config.model_path, config.job_name, config.thread_per_model) == ("/m", "a", 3)


@pytest.mark.parametrize(
    "address",
    ["s3://bucket/model", "hdfs:///models/a", "https://me:secret@host/model.zip?signature=1", "file:///srv/model.tgz"],
)
def test_the_address_of_a_model_stays_as_it_is(read, address):
    config = read(f"modelPath: {address}")
    assert config.model_path == job_options(config, "s").model.path == address


@pytest.mark.parametrize("address", ["file:///srv/model", "/srv/model"])
def test_a_folder_of_this_machine_may_be_written_as_an_address(read, address):
    assert read(f"modelPath: {address}").model_path == "/srv/model"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("ftp://me:secret@host/model.zip", "ftp://***@host/model.zip"),
        ("https://me:secret@host/model?token=secret", "https://***@host/model?***"),
        ("s3://key:secret@bucket/model", "s3://***@bucket/model"),
        ("https://host/model.zip#md5=00", "https://host/model.zip#md5=00"),
    ],
)
def test_an_address_of_no_model_is_refused_without_its_password(read, address, shown):
    with pytest.raises(SettingsError) as error:
        read(f'modelPath: "{address}"')
    assert f"modelPath is '{shown}' (text); expected the path of a folder" in str(error.value)
    assert "s3://" in str(error.value).partition("expected")[2]


def test_a_relative_model_path_starts_at_the_file(read, tmp_path):
    assert read("modelPath: some/model").model_path == str(tmp_path / "some/model")


def test_the_home_of_a_user_whom_nobody_knows_is_a_name_like_any_other(read, tmp_path):
    # So the message is that of any folder that does not exist.
    assert read("modelPath: ~nouser/model").model_path == f"{tmp_path}/~nouser/model"


@pytest.mark.parametrize("name", [".", "..", "a/b", "", "n" * 201, "{" + "n" * 200 + "}", "{}"])
def test_a_name_that_no_job_can_have_is_refused(read, name):
    with pytest.raises(SettingsError, match=r"line 2: jobName is .*; expected letters, digits.* up to 200 of them"):
        read(f"modelPath: m\njobName: '{name}'")
    for possible in ("...", "n" * 200, "{n}", "a.b-c_1"):
        assert read(f"modelPath: m\njobName: '{possible}'").job_name == possible


def test_a_key_without_a_value_keeps_its_default(read):
    assert read("modelPath: m\njobName:\n").job_name == "serving_stream"


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("imageScale: 1e-3", "image_scale", 0.001),
        ("imageMean: [5e-7]", "image_mean", (5e-7,)),
        ("maxImagePixels: 5e+07", "max_image_pixels", 50_000_000),
        ("missingValue: -1E3", "missing_value", -1000),
        ("jobName: 1e5x", "job_name", "1e5x"),
    ],
)
def test_numbers_may_be_written_as_helm_writes_them(read, line, key, value):
    assert getattr(read(f"modelPath: model\n{line}"), key) == value


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("modelParallelism: two", "modelParallelism is 'two' (text); expected a whole number from 1 to 4096"),
        ("modelParallelism: 0", "modelParallelism is 0 (a number); expected a whole number from 1 to 4096"),
        ('threadPerModel: "2"', "threadPerModel is '2' (text); expected a whole number of at least 1"),
        ("threadPerModel: true", "threadPerModel is True (a switch); expected a whole number of at least 1"),
        ("greedyBatching: 1", "greedyBatching is 1 (a number); expected true or false"),
        ("jobName: a b", "jobName is 'a b' (text); expected letters, digits"),
        ("jobName: 7", "jobName is 7 (a number); expected letters, digits"),
        ("inferencePrecision: int8", "inferencePrecision is 'int8' (text); expected float32 or empty"),
        ("executionMode: fiber", "executionMode is 'fiber' (text); expected thread or process"),
        (
            "postProcessing: topN(0)",
            "postProcessing is 'topN(0)' (text); expected topN(n), pickTopN(n), softmax, sigmoid, argmax,",
        ),
        ("imageResize: 224", "imageResize is 224 (a number); expected width,height"),
        ("imageResize: 1,2,3", "imageResize is '1,2,3' (text); expected width,height"),
        ("imageCrop: 224", "imageCrop is 224 (a number); expected width,height"),
        ("imageResample: cubic", "imageResample is 'cubic' (text); expected nearest, bilinear, bicubic"),
        ("imageResize: 9,9\nimageShortestEdge: 9", "imageShortestEdge is 9 (a number); expected a whole number of"),
        ("imageResize: 9,8\nimageCrop: 9,9", "imageCrop is '9,9' (text); expected width,height"),
        ("imageShortestEdge: 8\nimageCrop: 9,9", "imageCrop is '9,9' (text); expected width,height"),
        ("imageResize: 0,224", "imageResize is '0,224' (text); expected width,height"),
        ("inputShapes: [3, 4]", "inputShapes is [3, 4] (a list); expected a list of shapes"),
        ("redisMaxMemory: lots", "redisMaxMemory is 'lots' (text); expected a size"),
        ("batchTimeout: 1.5", "batchTimeout is 1.5 (a number); expected a whole number of milliseconds"),
        ("redisUrl: redis+cluster://h:1", f"redisUrl is text; expected {_REDIS}"),
        ("redisUrl: redis+sentinel://h:1", f"redisUrl is text; expected {_REDIS}"),
        ("redisUrl: redis://h:1?socket_timeout=1", f"redisUrl is text; expected {_REDIS}"),
        ("batchTimeout: -1", "batchTimeout is -1 (a number); expected a whole number of milliseconds, 0 or more"),
        ("resultTtl: 0", "resultTtl is 0 (a number); expected a whole number of seconds, at least 1"),
        ("redisUrl: redis://h:1/x", "redisUrl is 'redis://h:1/x' (text); expected host:port"),
        ("flinkRestUrl: localhost:x", "flinkRestUrl is 'localhost:x' (text); expected host:port"),
        ("queueUsed: kafka", "queueUsed is 'kafka' (text); expected redis"),
        ("jobname: a\njobName: b", "jobName is given a second time"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line_and_what_was_expected(read, line, expected):
    with pytest.raises(SettingsError) as error:
        read(f"# a comment\nmodelPath: m\n{line}")
    number = 3 + line.count("\n")
    assert f"config.yaml, line {number}: {expected}" in str(error.value)


def test_an_unknown_key_is_refused_with_the_key_that_was_meant(read):
    with pytest.raises(SettingsError, match=r"line 2: modelParalelism is not a key.*did you mean modelParallelism\?"):
        read("modelPath: m\nmodelParalelism: 2")


def test_all_wrong_values_are_named_at_once(read):
    with pytest.raises(SettingsError) as error:
        read("modelPath: m\nmodelParallelism: x\nresultTtl: y")
    assert [line.partition("; ")[0].partition(", ")[2] for line in str(error.value).splitlines()] == [
        "line 2: modelParallelism is 'x' (text)",
        "line 3: resultTtl is 'y' (text)",
    ]


@pytest.mark.parametrize("missing_ok", [True, False])
@pytest.mark.parametrize("name", ["file/config.yaml", f"{'x' * 300}.yaml"])
def test_a_path_that_cannot_be_looked_up_is_refused(tmp_path, name, missing_ok):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot be read"):
        config_file.read(tmp_path / name, missing_ok=missing_ok)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "modelPath is missing; expected the path of a folder"),
        ("- a\n- b", "line 1: expected keys and values"),
        ("modelPath: m\n x: [", "line 2: not valid YAML"),
        ("a: [1\n\nb: 2\nc: 3\n", "line 3: not valid YAML: .*, while parsing a flow sequence of line 1"),
        ("modelPath: m\n\tjobName: a", "line 2: not valid YAML"),
        ("modelPath: m\njobName: a\x07", "line 2: not valid YAML: a character of code 7"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(read, text, expected):
    with pytest.raises(SettingsError, match=expected):
        read(text)


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(SettingsError, match=r"does not exist.*cluster-serving-init"):
        config_file.read(tmp_path / "config.yaml")


def test_keys_of_the_original_without_effect_are_accepted_with_a_warning(read):
    warnings = []
    read("modelPath: m\nperformance_mode: OFF\nkafkaUrl: far", warnings.append)
    assert [warning.partition(", ")[2] for warning in warnings] == [
        "line 2: performance_mode has no effect",
        "line 3: kafkaUrl has no effect",
    ]


def test_keys_of_the_original_that_say_what_is_so_anyway_need_no_warning(read):
    warnings = []
    read("modelPath: m\nqueueUsed: redis\nredisSecureEnabled: false\nkafkaUrl:\n", warnings.append)
    read("model:\n  path: m\nsecure:\n  secure_enabled: false\n", warnings.append)
    assert [warning for warning in warnings if "no effect" in warning] == []


def test_an_unknown_key_is_told_with_its_three_nearest(read):
    with pytest.raises(SettingsError) as refused:
        read("modelPath: m\nzookeeper: far")
    told = str(refused.value)
    assert "zookeeper is not a key of this file; the nearest keys are " in told
    assert len(told.rpartition("are ")[2].split(", ")) == 3 and len(told) < 250


def test_an_option_of_the_front_end_among_the_keys_of_the_job_is_sent_to_its_section(read):
    with pytest.raises(SettingsError, match=r"line 2: apikeysfile is an option .* http: {apiKeysFile: …}"):
        read("modelPath: m\napikeysfile: keys")


@pytest.mark.parametrize(
    ("line", "attribute", "value"),
    [
        ("redisMaxMemory: 4g", "redis_max_memory", 4 << 30),
        ("redisMaxMemory: 512M", "redis_max_memory", 512 << 20),
        ("maxRequestBytes: 1000", "max_request_bytes", 1000),
        ("inputs: a, b", "inputs", ("a", "b")),
        ("outputs: [a, b]", "outputs", ("a", "b")),
        ("imageResize: 640,480", "image_resize", (640, 480)),
        ("imageResize: [640, 480]", "image_resize", (640, 480)),
        ("inputShapes: [[3, 224, 224], [2]]", "input_shapes", ((3, 224, 224), (2,))),
        ("postProcessing: topN(3)", "post_processing", "topN(3)"),
        ("redisUrl: h:1", "redis_url", "redis://h:1"),
        ("redisUrl: rediss://u:p@h/3", "redis_url", "rediss://u:p@h:6379/3"),
        ("redisUrl: rediss://h?ssl_ca_certs=/ca.pem", "redis_url", "rediss://h:6379?ssl_ca_certs=/ca.pem"),
        ("redisUrl: redis+sentinel://h:1,i/main", "redis_url", "redis+sentinel://h:1,i/main"),
        ("redisUrl: redis+cluster://h:1,i\njobName: '{a}'", "redis_url", "redis+cluster://h:1,i"),
        ("inferenceTimeout: 2", "inference_timeout", 2),
        ("flinkRestUrl: h:1", "flink_rest_url", "http://h:1"),
        ("flinkRestUrl: '[::1]:1'", "flink_rest_url", "http://localhost:1"),
    ],
)
def test_values_are_understood_in_all_their_forms(read, line, attribute, value):
    assert getattr(read(f"modelPath: m\n{line}"), attribute) == value


@pytest.mark.parametrize(("engine", "threads", "copies"), [("OpenVINO", 4, 1), ("TorchScript", 1, 4)])
def test_the_cores_of_a_machine_are_used_as_the_engine_does_best(read, engine, threads, copies):
    config = sized_for(read("modelPath: m\ncoreNumberPerMachine: 4"), engine)
    assert (config.thread_per_model, config.model_parallelism) == (threads, copies)


@pytest.mark.parametrize("unset", ["", "\ncoreNumberPerMachine: -1"])
def test_without_cores_threads_and_copies_are_as_configured(read, unset):
    config = sized_for(read(f"modelPath: m\nthreadPerModel: 2\nmodelParallelism: 3{unset}"), "OpenVINO")
    assert (config.thread_per_model, config.model_parallelism) == (2, 3)


@pytest.mark.parametrize(
    ("text", "variable", "threads"),
    [
        ("", "3", 3),
        ("", "all", cgroup.cores()),
        ("", "2,1", 2),
        ("", "many", None),
        ("\nthreadPerModel: 5", "3", 5),
        ("\nflinkRestUrl: elsewhere:8081", "all", None),
    ],
)
def test_omp_num_threads_counts_unless_the_file_says_otherwise(read, monkeypatch, text, variable, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert sized_for(read(f"modelPath: m{text}"), "OpenVINO").thread_per_model == threads


@pytest.mark.parametrize("text", ["performance_mode: ON", "params: {performance_mode: ON}"])
def test_the_originals_performance_mode_asks_for_throughput(read, text):
    warnings = []
    assert read(f"modelPath: m\n{text}", warnings.append).prefer == "throughput"
    assert not any("no effect" in warning for warning in warnings)
    with pytest.raises(SettingsError, match="prefer is given a second time|performance_mode is given a second time"):
        read(f"modelPath: m\nprefer: latency\n{text}")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("cpu", "cpu"),
        ("AUTO", "auto"),
        ("cuda", "cuda"),
        ("GPU.1", "gpu:1"),
        ("GPU:1", "gpu:1"),
        ("'cuda:0, cuda:1'", "cuda:0,cuda:1"),
        ("NPU", "npu"),
    ],
)
def test_devices_are_written_as_the_engines_do(read, given, meant):
    config = read(f"modelPath: m\ndevice: {given}")
    assert job_options(config, "start-1").model.device == meant


@pytest.mark.parametrize("given", ["tpu", "cuda.", "cuda:x", "auto,cpu", "cuda;cpu", "1", "[cuda]", "''", "cuda:-1"])
def test_other_devices_are_refused(read, given):
    with pytest.raises(SettingsError, match=r"device is .*; expected cpu, cuda, cuda:0, gpu, gpu:0, npu or auto"):
        read(f"modelPath: m\ndevice: {given}")


def test_a_password_is_never_shown(read):
    config = read("modelPath: m\nredisUrl: redis://me:secret@h:1")
    assert "secret" not in repr(config) + str(config) + config.redis_shown
    config = read("modelPath: m\nredisUrl: redis+sentinel://:secret@h:1,i/main?sentinel_password=secret")
    assert config.redis_shown == "redis+sentinel://***@h:1,i/main?sentinel_password=***"
    with pytest.raises(SettingsError) as error:
        read("modelPath: m\nredisUrl: redis://me:secret@h:1/not-a-number")
    assert "secret" not in str(error.value)


def test_the_job_gets_all_it_needs(read):
    lines = ("modelPath: /m", "claimIdleTime: 7", "imageResize: 8,9", "maxBatchSize: 5", "inferencePrecision: float32")
    options = job_options(read("\n".join(lines)), "start-1")
    assert JobOptions.from_json(options.to_json()) == options
    assert (options.redis.job, options.submission, options.model.path) == ("serving_stream", "start-1", "/m")
    assert options.model.inference_precision == "float32"
    assert (options.redis.claim_idle_time_s, options.image.resize, options.batch.max_batch_size) == (7, (8, 9), 5)


def test_each_option_has_the_value_and_the_default_of_its_key(read):
    options = job_options(read("modelPath: /m"), "start-1")
    assert replace(options, redis=replace(options.redis, stages=())) == JobOptions(
        "start-1",
        ModelOptions("/m"),
        RedisOptions("redis://localhost:6379", "serving_stream"),
    )
    lines = ("modelPath: /m", "redisTimeout: 1", "resultTtl: 2", "batchTimeout: 3", "requestDeadline: 4")
    options = job_options(read("\n".join([*lines, "inferenceTimeout: 5", "modelEncrypted: true"])), "start-1")
    assert (options.redis.timeout_ms, options.redis.result_ttl_s, options.batch.timeout_ms) == (1, 2, 3)
    assert (options.request_deadline_ms, options.model.inference_timeout_s, options.model.encrypted) == (4, 5, True)


def test_environment_variables_come_before_the_file(read, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_REDIS_URL", "redis://:secret@redis:6379")
    monkeypatch.setenv("CLUSTER_SERVING_MODEL_PARALLELISM", "3")
    config = read("modelPath: m\nmodelParallelism: 2")
    assert (config.redis_url, config.model_parallelism) == ("redis://:secret@redis:6379", 3)
    monkeypatch.setenv("CLUSTER_SERVING_MODEL_PARALLELISM", "many")
    with pytest.raises(
        SettingsError, match="environment variable CLUSTER_SERVING_MODEL_PARALLELISM: modelParallelism is"
    ):
        read("modelPath: m")


def test_a_mistyped_variable_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_MAXBATCHSIZE", "7")
    monkeypatch.setenv("CLUSTER_SERVING_HTTP_REDIS_URL", "here")
    monkeypatch.setenv("CLUSTER_SERVING_HOME", "here")
    path, warnings = tmp_path / "config.yaml", []
    path.write_text("modelPath: m")
    assert config_file.read(path, warnings.append).max_batch_size is None
    meant = "did you mean CLUSTER_SERVING_MAX_BATCH_SIZE?"
    assert warnings == [f"environment variable CLUSTER_SERVING_MAXBATCHSIZE has no effect; {meant}"]


def test_images_are_declared_as_the_model_was_trained(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "modelPath: m\nimageColor: RGB\nimageScale: 0.5\nimageMean: [1, 2.5, 3]\nimageStd: 2\nimageLayout: HWC\n"
    )
    image = job_options(config_file.read(path), "s").image
    assert (image.color, image.scale, image.mean, image.std, image.layout) == ("RGB", 0.5, (1, 2.5, 3), (2,), "HWC")
    assert JobOptions.from_json(job_options(config_file.read(path), "s").to_json()).image == image


@pytest.mark.parametrize("line", ["imageStd: [1, 0, 1]", "imageMean: [1, 2]", "imageColor: CMYK", "imageScale: 0"])
def test_images_cannot_be_declared_otherwise(tmp_path, line):
    path = tmp_path / "config.yaml"
    path.write_text(f"modelPath: m\n{line}\n")
    with pytest.raises(SettingsError, match=f"line 2.*{line.partition(':')[0]}"):
        config_file.read(path)


@pytest.mark.parametrize("line", ["imageStd: [1, 2, 3]", "imageMean: [1, 2, 3]"])
def test_a_single_channel_has_a_single_mean(read, line):
    with pytest.raises(SettingsError, match=r"line 3.*or of three unless imageColor is GRAY"):
        read(f"modelPath: m\nimageColor: GRAY\n{line}")
    assert read("modelPath: m\nimageColor: GRAY\nimageMean: [1]").image_mean == (1,)


@pytest.mark.parametrize("secret", ["*s3cret", "redis://host/0?password=s3cret", "s3cret!@", "{s3cret"])
def test_a_wrong_address_from_the_environment_is_not_repeated(tmp_path, monkeypatch, secret):
    path = tmp_path / "config.yaml"
    path.write_text("modelPath: m\n")
    monkeypatch.setenv("CLUSTER_SERVING_REDIS_URL", secret)
    with pytest.raises(SettingsError) as caught:
        config_file.read(path)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ("recordEncrypted: true\nrecordKey: 'my:own:salt'", RecordKey("my:own", "salt")),
        ("recordEncrypted: true\nrecordKey: published", published_key()),
        ("recordEncrypted: false\nrecordKey: own:salt", None),
        ("recordEncrypted:", None),
    ],
)
def test_images_are_decrypted_with_the_configured_key(read, lines, key):
    options = job_options(read(f"modelPath: m\n{lines}"), "s")
    assert options.image.record_key == key
    assert JobOptions.from_json(options.to_json()) == options


@pytest.mark.parametrize(
    "key", ["", "recordKey: s3cret", "recordKey: ':s3cret'", "recordKey: {s3cret: 1}", "recordKey: secret:salt"]
)
def test_encrypted_images_need_a_key_of_ones_own(read, key):
    with pytest.raises(
        SettingsError, match=r"recordKey is (missing|text|a mapping); expected secret:salt, two texts"
    ) as caught:
        read(f"modelPath: m\nrecordEncrypted: true\n{key}")
    assert "s3cret" not in str(caught.value)


def test_the_secret_of_a_model_comes_from_the_environment_and_is_never_shown(read, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_MODEL_SECRET", "[s3cret: 1:salt")
    config = read("modelPath: m\nmodelEncrypted: true")
    assert config.model_secret == ("[s3cret: 1", "salt")
    assert "s3cret" not in repr(config) + str(config) + repr(job_options(config, "s"))
    monkeypatch.setenv("CLUSTER_SERVING_MODEL_SECRET", "s3cret")
    with pytest.raises(SettingsError, match="modelSecret is text; expected secret:salt, or empty") as caught:
        read("modelPath: m\nmodelEncrypted: true")
    assert "s3cret" not in str(caught.value)


def test_a_key_of_images_comes_from_the_environment_and_is_never_shown(read, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_RECORD_KEY", "[s3cret: 1:salt")
    config = read("modelPath: m\nrecordEncrypted: true")
    assert config.record_key == RecordKey("[s3cret: 1", "salt")
    assert "s3cret" not in repr(config) + str(config) + repr(job_options(config, "s"))


def test_padding_is_a_mapping_of_numbers(read):
    assert job_options(read("modelPath: m\npadding: {ids: 0, x: 0.5}"), "s").model.padding == (("ids", 0), ("x", 0.5))
    with pytest.raises(
        SettingsError, match=r"padding is \{'ids': 'x'\} \(a mapping\); expected a mapping of inputs and"
    ):
        read("modelPath: m\npadding: {ids: x}")


def test_names_are_taken_as_they_are_written(read, monkeypatch):
    for text, names in (("[559, on]", ("559", "on")), ("559", ("559",)), ("on", ("on",)), ("1.10, no", ("1.10", "no"))):
        assert read(f"modelPath: model\noutputs: {text}\n").outputs == names
    monkeypatch.setenv("CLUSTER_SERVING_OUTPUTS", "[0559, yes]")
    assert read("modelPath: model\n").outputs == ("0559", "yes")
