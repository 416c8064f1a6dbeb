import http.server
import os
import signal
import socket
import threading

import pytest
import redis

from cluster_serving.job.options import HostedOptions, JobOptions, ModelOptions, RedisOptions
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.services import Services
from cluster_serving.launcher.jobs.steps import free_names
from cluster_serving.launcher.jobs.steps.base import Draft
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.services import redis_program, redis_server, redis_version
from cluster_serving.launcher.services.process import Process, is_listening, spawn
from cluster_serving.launcher.services.redis_version import RedisVersion
from cluster_serving.protocol.errors import RedisUnavailable
from cluster_serving.protocol.redis.connection import translated
from cluster_serving.settings.addresses import LOOPBACK, Address
from tests.support.fixtures.messages import heard
from tests.support.fixtures.redis_server import RedisServer, programs
from tests.support.fixtures.redis_topologies import Server, servers
from tests.support.fixtures.supervised import kept
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def config(monkeypatch, own_cluster):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(own_cluster.folder / "state"))

    def config(url=f"localhost:{own_cluster.redis_port}", **keys):
        return Config.model_validate({"modelPath": "m", "redisUrl": url, "startTimeout": 20} | keys)

    return config


OURS = "started by these commands: "


def ensure(config):
    with heard() as said:
        redis_server.ensure(config)
    return said


def test_a_redis_that_is_missing_is_started_once(config):
    assert ensure(config(redisMaxMemory="64m")) == [f"Starting Redis on port {config().redis_address.port}"]
    (said,) = ensure(config())
    assert said.startswith(f"Using Redis at localhost:{config().redis_address.port}, {OURS}") and "0 keys" in said
    with redis_server.connect(config()) as client:
        settings = client.config_get("*")
    assert settings["maxmemory"] == str(64 << 20)
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["appendonly"] == "yes"
    assert settings["auto-aof-rewrite-min-size"] == str(256 << 20)
    assert settings["bind"] == "-127.0.0.1 -::1"


def test_a_redis_of_somebody_else_is_introduced_with_what_it_may_lose(config, tmp_path):
    server = RedisServer(tmp_path)
    try:
        with redis.Redis(port=server.port) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
            client.config_set("appendonly", "no")
            client.set("theirs", 1)
            version = RedisVersion.read(client.info("server"))
        said = ensure(config(f"localhost:{server.port}"))
    finally:
        server.stop()
    assert said[0] == f"Using Redis at localhost:{server.port}, not started by these commands: {version}, 1 keys"
    product = version.product.lower()
    command = f"{product}-cli -h localhost -p {server.port} CONFIG SET"
    assert "appendonly no" in said[1] and f"{command} appendonly yes, and set it in {product}.conf" in said[1]
    assert "allkeys-lru" in said[2] and f"{command} maxmemory-policy noeviction" in said[2]
    assert "no maxmemory" in said[3] and f"{command} maxmemory 8gb" in said[3]


def test_a_node_of_a_cluster_has_jobs_whose_names_have_braces(config, tmp_path):
    with servers() as running:
        port = running(Server(tmp_path, "--cluster-enabled", "yes")).port
        named = rf"node of a Redis Cluster.*set jobName: '{{shop}}' and redisUrl: redis\+cluster://localhost:{port}"
        with pytest.raises(LaunchError, match=named):
            ensure(config(f"localhost:{port}", jobName="shop"))
        ensure(config(f"localhost:{port}", jobName="{shop}"))
        with redis.Redis(port=port, decode_responses=True) as client:
            services = Services(None, None, JobStore(client, "{shop}"))
            models = (HostedOptions(name, None, None, None, "", 0, "1", False) for name in ("a", "b"))
            options = JobOptions("s", ModelOptions("/models"), RedisOptions("", "{shop}"), hosted=tuple(models))
            reason = rf"^/models holds several models, .*; set redisUrl: redis\+cluster://localhost:{port}"
            with pytest.raises(LaunchError, match=reason):
                free_names.checked(Draft(services, config(f"localhost:{port}", modelPath="/models"), options))


@pytest.mark.parametrize("program", programs(), ids=str)
def test_a_version_with_known_holes_is_a_warning_with_the_fixed_version(config, tmp_path, program):
    server = RedisServer(tmp_path, "--maxmemory", "1gb", program=program)
    try:
        with redis.Redis(port=server.port) as client:
            version = RedisVersion.read(client.info("server"))
        _, *warnings = ensure(config(f"localhost:{server.port}"))
    finally:
        server.stop()
    holes = f"Redis at localhost:{server.port} is {version}, which has known security holes that {version.fixed} closes"
    assert len(warnings) == bool(version.fixed)
    assert all(warning.startswith(holes) and "as Debian does" in warning for warning in warnings)


def test_a_warning_of_an_own_redis_names_its_program(config, monkeypatch):
    monkeypatch.setattr(redis_version, "_FIXED", dict.fromkeys(("Redis", "Valkey"), ("255.0.1",)))
    said = ensure(config())
    assert f"that 255.0.1 closes; update {redis_program.find()}, unless" in said[-1]
    assert "\n" not in said[-1]


def test_a_user_without_the_right_to_ask_for_the_version_gets_no_warning(config, tmp_path):
    server = RedisServer(tmp_path)
    try:
        with redis.Redis(port=server.port) as client:
            client.acl_setuser("me", enabled=True, passwords=["+word"], keys=["*"], commands=["+@all", "-info"])
        assert len(ensure(config(f"redis://me:word@localhost:{server.port}"))) == 1
    finally:
        server.stop()


def test_the_program_that_wrote_the_data_goes_on_with_them(config, tmp_path, monkeypatch):
    """Valkey 9.1 writes what no Redis and no earlier Valkey reads."""
    first = redis_program.find()
    ensure(config())
    address = config().redis_address
    redis_server.stop(address, keep_data=True)
    other = tmp_path / "valkey-server"
    other.write_text(f'#!/bin/sh\nexec {first} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert redis_program.find() == other
    assert redis_server._program(address) == first
    monkeypatch.setenv("REDIS_HOME", str(tmp_path))
    assert redis_server._program(address) == other
    monkeypatch.delenv("REDIS_HOME")
    redis_server.stop(address)
    assert redis_server._program(address) == other


def test_data_count_also_after_the_append_only_file_was_rewritten(config):
    ensure(config())
    address = config().redis_address
    assert not redis_server.size_on_disk(address)
    with redis_server.connect(config()) as client:
        client.xadd("stream", {"uri": "a"})
        client.bgrewriteaof()
    # From Redis 7 on, all data are in another file then.
    wait_until(lambda: not any(file.stat().st_size for file in redis_server.folder(address).glob("*/*.incr.aof")))
    assert redis_server.size_on_disk(address)


def test_all_names_of_this_machine_mean_the_same_redis(config, own_cluster):
    ensure(config())
    with redis_server.connect(config()) as client:
        # Clients of 0.7 to 0.9 drop every request if there is no limit.
        half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        assert client.config_get("maxmemory")["maxmemory"] == str(min(8 << 30, half))
    for host in LOOPBACK if socket.has_dualstack_ipv6() else ("localhost", "127.0.0.1"):
        address = config(str(Address(host, own_cluster.redis_port)))
        assert OURS in ensure(address)[0]
        assert redis_server.is_ours(address.redis_address)


def test_stopping_redis_removes_its_data_and_keeps_its_log(config):
    ensure(config())
    folder = redis_server.folder(config().redis_address)
    assert len(list(folder.iterdir())) > 1
    assert redis_server.stop(config().redis_address)
    assert not is_listening(config().redis_address)
    assert [path.name for path in folder.iterdir()] == ["redis.log"]
    assert not redis_server.stop(config().redis_address)


def test_a_password_in_the_address_protects_it(config, own_cluster):
    with_password = config(f"redis://:se%20cret@localhost:{own_cluster.redis_port}/1")
    ensure(with_password)
    with redis_server.connect(with_password) as client:
        assert client.ping()
    with pytest.raises(LaunchError, match="refuses the user and password"):
        ensure(config())


def test_a_password_that_redis_does_not_have_is_told(config, db):
    port = db.connection_pool.connection_kwargs["port"]
    address = config(f"redis://:secret@localhost:{port}")
    with pytest.raises(LaunchError, match="has no password, and redisUrl names one: leave it out"):
        redis_server.check(address)
    told = pytest.raises(RedisUnavailable, match="none: leave it out of")
    with redis_server.connect(address) as client, told, translated(client):
        client.ping()


def test_an_address_that_asks_for_tls_in_vain_says_so(config, db):
    port = db.connection_pool.connection_kwargs["port"]
    with pytest.raises(LaunchError, match="without TLS.*write redis://"):
        redis_server.check(config(f"rediss://127.0.0.1:{port}"))


def supervise(config, *command):
    """A supervisor that is in the record of the Redis."""
    home = redis_server.folder(config.redis_address)
    home.mkdir(parents=True)
    record = home / "process.json"
    return spawn(command, record, home / "redis.log", home, os.environ), record


def test_a_redis_that_is_being_started_again_is_waited_for(config, own_cluster, tmp_path):
    command = (
        f"until test -e {tmp_path}/go; do sleep 0.1; done; exec {redis_program.find()} --port {own_cluster.redis_port}"
    )
    supervisor, record = supervise(config(), "sh", "-c", command)
    # A Redis that listens already would be introduced.
    threading.Timer(2, (tmp_path / "go").touch).start()
    assert ensure(config()) == []
    assert Process.read(record) == supervisor


def test_an_own_redis_that_hangs_is_named_as_that(config):
    ensure(config())
    pid = kept(Process.read(redis_server.folder(config().redis_address) / "process.json").pid)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(LaunchError, match="which these commands started, does not answer.*kill -KILL") as caught:
            redis_server.check(config(redisTimeout=200))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "stop what uses" not in str(caught.value)


def test_a_redis_that_does_not_come_back_is_replaced(config):
    supervisor, record = supervise(config(), "sleep", "1000")
    ensure(config(startTimeout=3))
    assert not supervisor.is_alive
    assert Process.read(record)


def test_paths_and_passwords_may_have_any_letters(config, own_cluster, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(own_cluster.folder / "état"))
    accented = config(f"redis://:p%C3%A4ss@localhost:{own_cluster.redis_port}")
    try:
        ensure(accented)
        with redis_server.connect(accented) as client:
            assert client.config_get("dir") == {"dir": str(redis_server.folder(accented.redis_address))}
    finally:
        redis_server.stop(accented.redis_address)


def test_a_port_that_something_else_uses_is_named_with_its_setting(config, own_cluster):
    server = http.server.HTTPServer(("127.0.0.1", own_cluster.redis_port), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(LaunchError, match=f"port {own_cluster.redis_port} .*taken.*redisUrl"):
            ensure(config(redisTimeout=1000))
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("url", ["nowhere.invalid:6379", "rediss://localhost:1", "redis://me:secret@localhost:1"])
def test_a_redis_that_cannot_be_started_here_is_unreachable(config, url):
    with pytest.raises(LaunchError, match=r"\(redisUrl\) cannot be reached") as error:
        ensure(config(url))
    assert "secret" not in str(error.value)
