"""The Redis of a job: one that runs already, or one that is started on this machine."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError
from redis.retry import Retry

from cluster_serving.launcher.command_log import say, warn
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import memory, redis_program, state
from cluster_serving.launcher.services.process import (
    Process,
    is_listening,
    locked,
    remove_files,
    start,
    stop_recorded,
    wait_until,
)
from cluster_serving.launcher.services.redis_version import RedisVersion
from cluster_serving.protocol.keys import JOBS_KEY
from cluster_serving.protocol.redis.connection import open_redis
from cluster_serving.protocol.redis.tls import WrongTLS
from cluster_serving.protocol.redis.url import HINT
from cluster_serving.settings.addresses import Address

MINIMUM_VERSION = (6, 2)

SERVICE = "redis"
"""Name of the service in the state folder."""

_MAX_MEMORY = 8 << 30
_RECORD = "process.json"
_LOG = "redis.log"
_SETTINGS = "redis.conf"
_PASSWORD = "requirepass "  # noqa: S105 - the word before it
_PROGRAM = "# Written for "
_EMPTY_BASE = 128
"""Bytes of the rewritten part of an append-only file that has nothing in it, at most."""
_TIMEOUT_S = 30.0
"""Seconds to wait for a Redis that is counted: it may be saving, or may answer others."""


def connect(config: Config, decode: bool = True, job: str | None = None) -> redis.Redis:
    """Return a client that does not retry; the caller closes it.

    Replies are text, or bytes without `decode`. The client is for the keys of `job`, or of the configuration's job.
    """
    seconds = config.redis_timeout / 1000
    return open_redis(
        config.redis_url,
        job or config.job_name,
        decode_responses=decode,
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
        retry=Retry(NoBackoff(), 0),
    )


def ensure(config: Config) -> None:
    """Use the Redis of `redisUrl`, and say whose it is, or start one there.

    Warn of settings of a Redis that was not started here by which requests and results may be lost, and of holes that
    its version is known for.

    Raises:
        LaunchError: If it cannot be used, or started; also if it is a node of a Redis Cluster, and the name of the job
            has no braces, or another node has its keys.
    """
    check_usable(config)
    if config.redis_has_failover or is_listening(config.redis_address):
        _check_one_slot(config)
        _introduce(config)
    else:
        _start(config)
        check(config)
    warn_of_holes(config)


def warn_of_holes(config: Config) -> None:
    """Warn of a Redis whose version has known holes. It is used all the same."""
    # As in `check`, INFO may be forbidden.
    with connect(config) as client, suppress(ResponseError):
        info = cast("dict[str, Any]", client.info("server"))
        version = RedisVersion.read(info)
        if version.fixed:
            program = info["executable"] if _has_ours(config) else "it"
            warn(
                f"{_name(config)} is {version}, which has known security holes that {version.fixed} closes; update "
                f"{program}, unless its distribution has closed them without changing the version, as Debian does"
            )


def _name(config: Config) -> str:
    return f"Redis at {config.redis_shown if config.redis_has_failover else config.redis_address}"


def _has_ours(config: Config) -> bool:
    return not config.redis_has_failover and is_ours(config.redis_address)


def _introduce(config: Config) -> None:
    address = config.redis_address
    ours = _has_ours(config)
    name = _name(config)
    try:
        with connect(config) as client:
            info = cast("dict[str, Any]", client.info())
            database = client.connection_pool.connection_kwargs.get("db") or 0
    except ResponseError:
        # As in `check`.
        say(f"Using {name}")
        return
    version = RedisVersion.read(info)
    keys = info.get(f"db{database}", {}).get("keys", 0)
    origin = "started" if ours else "not started"
    say(f"Using {name}, {origin} by these commands: {version}, {keys} keys")
    if ours:
        return
    product = "valkey" if version.product == "Valkey" else "redis"
    cli = "" if config.redis_has_failover else f"{product}-cli -h {address.host} -p {address.port} "
    if not info.get("aof_enabled"):
        warn(
            f"{name} has appendonly no: waiting requests are lost when it ends. To keep them, run "
            f"{cli}CONFIG SET appendonly yes, and set it in {product}.conf"
        )
    if (policy := info.get("maxmemory_policy", "noeviction")) != "noeviction":
        warn(
            f"{name} has maxmemory-policy {policy}: it may drop requests or results when its memory is full. To refuse "
            f"new requests instead, run {cli}CONFIG SET maxmemory-policy noeviction, and set it in {product}.conf"
        )
    if not info.get("maxmemory"):
        warn(
            f"{name} has no maxmemory: it may fill the memory of its machine, and clients of Analytics Zoo 0.7 to 0.9 "
            f"drop every request. To set one, run {cli}CONFIG SET maxmemory 8gb, and set it in {product}.conf"
        )


def check_usable(config: Config) -> None:
    """Check, before anything is started, that Redis can be used, or started."""
    address = config.redis_address
    url = urlsplit(config.redis_url)
    if config.redis_has_failover or is_listening(address):
        check(config)
    elif not address.is_local or url.scheme != "redis" or url.username:
        raise LaunchError(
            f"Redis at {config.redis_shown} (redisUrl) cannot be reached; start it, or set redisUrl to another. "
            "cluster-serving-start starts one only on this machine, without TLS and without a user name"
        )


def check(config: Config) -> None:
    """Check that a usable Redis listens at `redisUrl`.

    Raises:
        LaunchError: If it does not answer, is another service, refuses the credentials or is too old.
    """
    address = config.redis_address
    if not config.redis_has_failover and not is_listening(address):
        raise LaunchError(f"Redis at {address} (redisUrl) cannot be reached; start it, or set redisUrl to another")
    with connect(config) as client:
        try:
            wait_until(lambda: _has_loaded(client), config.start_timeout)
            version = str(client.info("server")["redis_version"])
        except WrongTLS as error:
            raise LaunchError(f"Redis at {config.redis_shown} (redisUrl) cannot be used: {error}") from None
        except AuthenticationError as error:
            if "without any password" in str(error):
                raise LaunchError(
                    f"Redis at {address} has no password, and redisUrl names one: leave it out of redisUrl"
                ) from None
            raise LaunchError(
                f"Redis at {address} refuses the user and password in redisUrl: {error}; {HINT}"
            ) from None
        except ResponseError:
            # An access list may forbid INFO to this user; Redis can be used all the same.
            return
        except (RedisError, OSError, ValueError) as error:
            if config.redis_has_failover:
                raise LaunchError(f"Redis at {config.redis_shown} (redisUrl) cannot be used: {error}") from None
            if is_ours(address):
                raise LaunchError(
                    f"Redis at {address}, which these commands started, does not answer ({error}); see "
                    f"{folder(address) / _LOG}. If it hangs, end the process valkey-server or redis-server of port "
                    f"{address.port} with kill -KILL: it is started again with its data"
                ) from None
            raise LaunchError(
                f"port {address.port} on {address.host} is taken by something that does not answer as Redis ({error}); "
                "set redisUrl to another port, or stop what uses this one"
            ) from None
    if tuple(int(part) for part in version.split(".")[:2]) < MINIMUM_VERSION:
        raise LaunchError(
            f"Redis at {address} (redisUrl) is version {version}; upgrade it to 6.2 or later, or name another"
        )


def _check_one_slot(config: Config) -> None:
    """Check that the keys of the job lie on one node, and that the address finds it."""
    job, address = config.job_name, config.redis_address
    with connect(config) as client:
        if not is_cluster(client):
            return
        if not job.startswith("{"):
            raise LaunchError(
                f"Redis at {address} (redisUrl) is a node of a Redis Cluster, where the keys of {job} lie on several "
                f"nodes; set jobName: '{{{job}}}' and redisUrl: redis+cluster://{address}"
            )
        if not config.redis_has_failover and any(_is_elsewhere(client, key) for key in (JOBS_KEY, job)):
            raise LaunchError(
                f"Redis at {address} (redisUrl) is one of the nodes of a Redis Cluster, and the job {job} needs keys "
                f"of another one; set redisUrl: redis+cluster://{address}"
            )


def _is_elsewhere(client: redis.Redis, key: str) -> bool:
    """Return True if another node of a Redis Cluster has a key."""
    try:
        client.exists(key)
    except ResponseError as error:
        # Otherwise no node has it, or this user may not look.
        return str(error).startswith("MOVED ")
    return False


def is_cluster(client: redis.Redis) -> bool:
    """Return True if a Redis is a node of a Redis Cluster, whatever the address says."""
    # As in `check`, INFO may be forbidden.
    with suppress(ResponseError):
        return bool(cast("dict[str, Any]", client.info("cluster")).get("cluster_enabled"))
    return False


def _has_loaded(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except BusyLoadingError:
        return False


def stop(address: Address, keep_data: bool = False) -> bool:
    """Stop the Redis that was started here, and remove its data but the log. Return True if there was one.

    With `keep_data`, the next start finds the data again.
    """
    home = folder(address)
    with locked(home):
        stopped = stop_recorded(home / _RECORD)
        if not keep_data:
            remove_files(home, keep={f"{_LOG}*"})
        return stopped


def is_ours(address: Address) -> bool:
    """Return True if the Redis at an address was started here and runs."""
    return Process.read(folder(address) / _RECORD) is not None


def connect_own(address: Address, database: int = 0, decode: bool = False) -> redis.Redis:
    """Return a client of the Redis that was started here, with the password of its start.

    Replies are bytes, or text with `decode`.
    """
    passwords = [
        json.loads(words.removeprefix(_PASSWORD))
        for words in (folder(address) / _SETTINGS).read_text("utf8").splitlines()
        if words.startswith(_PASSWORD)
    ]
    return redis.Redis(
        address.host,
        address.port,
        db=database,
        password=passwords[0] if passwords else None,
        socket_timeout=_TIMEOUT_S,
        decode_responses=decode,
    )


def size_on_disk(address: Address) -> int:
    """Return the number of bytes in the append-only file of a Redis that was started here; 0 if it has no data."""
    home = folder(address)
    # Before Redis 7 a file; then a folder with what the last rewrite has left, and what came after it.
    bases = [size for file in home.glob("*/*.rdb") if (size := file.stat().st_size) > _EMPTY_BASE]
    return sum(bases) + sum(file.stat().st_size for glob in ("*.aof", "*/*.aof") for file in home.glob(glob))


def folder(address: Address) -> Path:
    """Return the folder with data and logs of a Redis that is started here."""
    return state.folder(SERVICE, address)


def _start(config: Config) -> None:
    address = config.redis_address
    home = folder(address)
    with locked(home):
        if supervisor := Process.read(home / _RECORD):
            # It may be starting Redis again, and two supervisors would fight for the port and the data.
            wait_until(lambda: is_listening(address) or not supervisor.is_alive, config.start_timeout)
            if not is_listening(address):
                supervisor.stop()
        if is_listening(address):
            return
        home.mkdir(mode=0o700, exist_ok=True)
        say(f"Starting Redis on port {address.port}")
        conf, settings = home / _SETTINGS, _settings(config, home)
        program = _program(address)
        state.write(conf, f"{_PROGRAM}{program}\n{settings}")
        command, timeout = [program, conf], config.start_timeout
        start("Redis", command, home / _RECORD, home / _LOG, home, os.environ, lambda _: is_listening(address), timeout)


def _program(address: Address) -> Path:
    """Return the program that wrote the data of an address, or the one for new data.

    Valkey, Redis and their versions do not read all data of each other, and Redis 6.2 starts without them.
    """
    home = folder(address)
    conf = home / _SETTINGS
    if any(home.glob("appendonly*")) and conf.exists() and not os.environ.get("REDIS_HOME"):
        first = conf.read_text("utf8").partition("\n")[0]
        if first.startswith(_PROGRAM) and redis_program.is_program(last := Path(first.removeprefix(_PROGRAM))):
            return last
    return redis_program.find()


def _settings(config: Config, home: Path) -> str:
    password = urlsplit(config.redis_url).password
    settings: dict[str, object] = {
        # "-": not an error on a machine without IPv6, or with IPv6 alone.
        "bind": ("-127.0.0.1", "-::1"),
        "port": config.redis_address.port,
        "protected-mode": "yes",
        # The queue survives a restart; a full memory refuses requests instead of forgetting some.
        "appendonly": "yes",
        # To rewrite the file costs a fork and the pages that are written meanwhile: with the usual 64 MiB, every second
        # under large tensors. To read 256 MiB at a restart takes two or three seconds.
        "auto-aof-rewrite-min-size": "256mb",
        "save": "",
        "maxmemory": config.redis_max_memory or min(_MAX_MEMORY, memory.total_memory() // 2),
        "maxmemory-policy": "noeviction",
        "dir": str(home),
    }
    if password:
        settings[_PASSWORD.strip()] = unquote(password)
    return "".join(f"{key} {_quoted(value)}\n" for key, value in settings.items())


def _quoted(value: object) -> str:
    words = value if isinstance(value, tuple) else (value,)
    return " ".join(json.dumps(str(word), ensure_ascii=False) for word in words)
