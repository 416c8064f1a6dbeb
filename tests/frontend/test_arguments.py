"""Where options come from, and what is said about wrong ones."""

import re

import pytest

from cluster_serving.frontend import arguments
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.settings.addresses import LOOPBACK, Address
from cluster_serving.settings.errors import SettingsError

GUIDE = (
    "--interface=0.0.0.0 --port=10021 --redisHost=172.16.0.109 --redisPort 6380 --redisInputQueue=serving_stream "
    "--redisOutputQueue=result: --parallelism 1000 --timeWindow=0 --countWindow=56 --tokenBucketEnabled true "
    "--tokensPerSecond=100 --tokenAcquireTimeout=100 --httpsEnabled=false"
)


def test_every_option_of_the_guide_is_taken():
    options = arguments.read(GUIDE.split(), {})
    assert options.redis_address == "redis://172.16.0.109:6380"
    assert (options.interface, options.port, options.token_bucket_enabled) == ("0.0.0.0", 10021, True)


def test_the_defaults_are_the_guides_but_for_the_interface():
    options = arguments.read([], {})
    assert (options.interface, options.port, options.secure_port) == ("127.0.0.1", 10020, 10023)
    assert options.redis_address == "redis://localhost:6379"
    assert (options.parallelism, options.time_window, options.count_window) == (1000, 0, 56)
    assert (options.token_bucket_enabled, options.tokens_per_second, options.token_acquire_timeout) == (False, 100, 100)


def test_an_option_keeps_its_earlier_name_in_every_source(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("modelPath: model\nhttp:\n  canaryInterval: 7\n")
    earlier = {"CLUSTER_SERVING_HTTP_CANARY_INTERVAL": "6"}
    assert arguments.read(["-c", str(file)], {}).probe_interval == 7
    assert arguments.read(["-c", str(file)], earlier).probe_interval == 6
    assert arguments.read([], earlier | {"CLUSTER_SERVING_HTTP_PROBE_INTERVAL": "5"}).probe_interval == 5
    assert arguments.read(["--canaryInterval=4", "--probe-timeout=3"], earlier).probe_interval == 4
    with pytest.raises(SettingsError, match="CLUSTER_SERVING_HTTP_CANARY_INTERVAL: probeInterval is '-1'"):
        arguments.read([], {"CLUSTER_SERVING_HTTP_CANARY_INTERVAL": "-1"})


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("modelPath: model\njobname: digits\nredisUrl: elsewhere:6380\nhttp:\n  port: 1\n  Parallelism: 5\n")
    given = ["-c", str(file), "--port=3"]
    options = arguments.read(given, {"CLUSTER_SERVING_HTTP_PORT": "2", "CLUSTER_SERVING_HTTP_ACCESS_LOG": "true"})
    assert (options.port, options.parallelism, options.access_log) == (3, 5, True)
    assert (options.redis_input_queue, options.redis_address) == ("digits", "redis://elsewhere:6380")
    assert arguments.read([*given, "--redisHost=here"], {}).redis_address == "redis://here:6379"
    shared = {"CLUSTER_SERVING_REDIS_URL": "rediss://user:secret@host:1/2"}
    assert arguments.read(given, shared).redis_address == shared["CLUSTER_SERVING_REDIS_URL"]


def test_a_host_comes_before_an_address_from_further_back(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("redisUrl: file:1\n")
    given = ["-c", str(file)]
    variables = {"CLUSTER_SERVING_HTTP_REDIS_HOST": "variable"}
    assert arguments.read(given, variables).redis_address == "redis://variable:6379"
    assert arguments.read([*given, "--redisUrl=line:2"], variables).redis_address == "redis://line:2"
    file.write_text("redisUrl: file:1\nhttp:\n  redisPort: 7\n")
    assert arguments.read(given, {}).redis_address == "redis://localhost:7"


def test_nested_files_of_the_original_are_read_as_the_job_reads_them(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("model:\n  name: mine\ndata:\n  src: there:6380\nflink:\n  rest: flink:8081\n")
    options = arguments.read(["-c", str(file)], {})
    assert (options.redis_address, options.redis_input_queue) == ("redis://there:6380", "mine")
    assert options.flink_address == "http://flink:8081"


def test_the_flink_of_the_file_is_linked_unless_the_options_name_another_page(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("flinkRestUrl: flink:8081\n")
    assert arguments.read(["-c", str(file)], {}).flink_address == "http://flink:8081"
    assert arguments.read(["-c", str(file), "--flinkUiUrl=https://ui"], {}).flink_address == "https://ui"
    assert arguments.read(["--flinkUiUrl=javascript:alert()"], {}).flink_address == "http://javascript:alert()"
    assert arguments.read([], {}).flink_address == ""


def test_redis_may_be_asked_for_over_tls():
    assert arguments.read(["--redisSecureEnabled"], {}).redis_address == "rediss://localhost:6379"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port=seven"], r"--port: port is 'seven' \(text\); .*integer"),
        (["--port=70000"], "--port: .*65535"),
        (["--responseFormat=xml"], "--responseFormat: .*'zoo-0.9'"),
        (["--httpsEnabled"], "httpsKeyStorePath"),
        (["--plainHttpEnabled=false"], "plainHttpEnabled"),
        (["--redisOutputQueue=other:"], "redisOutputQueue is 'other:'.*cluster-serving_serving_stream:"),
        (["--redisUrl=http://host"], "redisUrl"),
        (["-c", "/no/such.yaml"], "/no/such.yaml cannot be read"),
    ],
)
def test_a_wrong_option_is_named_with_what_was_expected(words, message):
    with pytest.raises(SettingsError, match=message):
        arguments.read(words, {})


@pytest.mark.parametrize(
    "host", ["http://a:1", "a:99999", "a:0", "a:", ":80", "a:1/path", "*.a.b", "user@a", "a b", "::1", "a?b"]
)
def test_a_host_of_callbacks_that_no_address_can_have_is_refused(host):
    with pytest.raises(SettingsError, match=rf"--callbackHosts: .*{re.escape(host)}.*expected host or host:port"):
        arguments.read([f"--callbackHosts=good:80,{host}"], {})


def test_hosts_of_callbacks_may_have_ports_and_be_addresses():
    given = ("hooks.example.com:8443", "10.0.0.1", "[::1]:80")
    assert arguments.read([f"--callbackHosts={','.join(given)}"], {}).callback_hosts == given


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# a job\nhttp:\n  prot: 1", r"config\.yaml, line 3: http\.prot is not an option; did you mean port\?"),
        ("# a job\nhttp:\n  port: many", r"config\.yaml, line 3: port is 'many' \(text\); .*integer"),
        ("http: 10020", "line 1: http is not a mapping; expected options"),
        ("[1]", "line 1: expected keys"),
        ("a: [", "line 1: not valid YAML"),
    ],
)
def test_a_wrong_file_is_named_with_what_was_expected(tmp_path, text, message):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=message):
        arguments.read(["-c", str(file)], {})


def test_secrets_are_in_no_message(tmp_path):
    with pytest.raises(SettingsError) as caught:
        arguments.read(["--redisUrl=ftp://user:hidden@host", "--httpsKeyStoreToken=hidden"], {})
    assert "hidden" not in str(caught.value)
    assert "hidden" not in repr(arguments.read(["--redisUrl=redis://:hidden@host"], {}))
    (tmp_path / "config.yaml").write_text("http: {httpsKeyStoreToken: [hidden], redisUrl: [hidden]}")
    with pytest.raises(SettingsError, match="httpsKeyStoreToken is a list") as caught:
        arguments.read(["-c", str(tmp_path / "config.yaml")], {})
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("host", LOOPBACK)
def test_the_job_and_the_front_end_agree_on_what_is_local(host):
    assert arguments.read([f"--interface={host}"], {}).is_local
    assert Address(host, 1).is_local
    assert not arguments.read(["--interface=0.0.0.0"], {}).is_local
    assert not Address("elsewhere", 1).is_local


def test_an_unknown_flag_ends_the_command():
    with pytest.raises(SystemExit):
        arguments.read(["--portt=1"], {})


def test_options_are_handed_to_another_process_as_they_were_given():
    given = [*GUIDE.split(), "--httpsKeyStoreToken=secret", "--models=a,b", "--redisUrl=redis://:password@host:1"]
    options = arguments.read(given, {})
    handed = HttpOptions.from_json(options.to_json())
    assert handed == options
    assert handed.model_fields_set == options.model_fields_set
    assert handed.https_key_store_token.get_secret_value() == "secret"
