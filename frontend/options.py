"""The options of the front end, by the names of the original's HTTP server where it has them."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, ClassVar, Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, field_validator

from cluster_serving.frontend.errors import RECORD_BYTES
from cluster_serving.protocol.keys import DEFAULT_JOB, JobKeys
from cluster_serving.protocol.redis.addresses import is_cluster_url
from cluster_serving.protocol.redis.url import HINT, check_login
from cluster_serving.settings.addresses import LOOPBACK
from cluster_serving.settings.model import Settings, SettingsConfig
from cluster_serving.settings.values import Names

ResponseFormat = Literal["json", "bigdl", "zoo-0.9"]
"""Format of predictions: plain JSON, or the texts of the original's 0.10 and later, or 0.9."""

_SCHEMES = tuple(f"{scheme}{kind}" for scheme in ("redis", "rediss") for kind in ("", "+sentinel", "+cluster"))

_MOST_WAITING = 1000
"""Instances that may wait whatever `parallelism` is: the original queues all of them, for as long as they may wait."""


def _option(default: Any, meaning: str, **constraints: Any) -> Any:
    return Field(default, description=meaning, **constraints)


class HttpOptions(Settings):
    """Checked options; made by `frontend.arguments.read`."""

    model_config = SettingsConfig(env_prefix="CLUSTER_SERVING_HTTP_", populate_by_name=True)

    replaced_by: ClassVar[Mapping[str, frozenset[str]]] = {"redisUrl": frozenset({"redisHost", "redisPort"})}
    earlier_names: ClassVar[Mapping[str, str]] = {"probeInterval": "canaryInterval", "probeTimeout": "canaryTimeout"}

    interface: str = _option(
        "127.0.0.1", "Address to listen on; * for all of this machine, 0.0.0.0 for those of IPv4.", min_length=1
    )
    port: int = _option(10020, "Port for HTTP; 0 for any free one.", ge=0, le=65535)
    plain_http_enabled: bool = _option(True, "false: listen for HTTPS alone.")
    https_enabled: bool = _option(False, "true: listen for HTTPS too, on securePort.")
    secure_port: int = _option(10023, "Port for HTTPS; 0 for any free one.", ge=0, le=65535)
    https_key_store_path: str = _option("", "PKCS12 file with the certificate and its private key.")
    https_key_store_token: SecretStr = _option("", "Password of that file.")
    https_certificate_path: str = _option("", "PEM file of the certificate chain, instead of the PKCS12 file.")
    https_private_key_path: str = _option("", "PEM file of the private key of httpsCertificatePath.")
    grpc_enabled: bool = _option(True, "false: no gRPC.")
    grpc_compression: bool = _option(
        False, "true: take compressed messages over gRPC. Trust the senders: maxBodyBytes counts too late."
    )
    grpc_port: int = _option(
        8980,
        "Port for gRPC, with TLS if httpsEnabled; 0 for any free one. If it is not set and 8980 is taken, it is any "
        "free one.",
        ge=0,
        le=65535,
    )

    grpc_connection_age: float = _option(
        30.0,
        "Seconds after which a gRPC client is asked to connect anew, as it must before a front end can stop without "
        "failing its calls; calls in progress go on. 0: never.",
        ge=0,
    )

    redis_url: str = _option(
        "", "Redis of the jobs, such as redis://user:password@host:port/db; or redisHost and redisPort.", repr=False
    )
    redis_host: str = _option("localhost", "Host of Redis.", min_length=1)
    redis_port: int = _option(6379, "Port of Redis.", ge=1, le=65535)
    redis_secure_enabled: bool = _option(False, "true: speak TLS with Redis; so does redisUrl: rediss://…")
    rediss_trust_store_path: str = _option(
        "", "PEM or PKCS12 file of the certificates that Redis is checked against; empty: the system's."
    )
    rediss_trust_store_token: SecretStr = _option("", "Password of that file.")

    redis_input_queue: str = _option(
        "", f"Job that /predict asks; empty: {DEFAULT_JOB}, or the only job if there is one of another name."
    )
    redis_output_queue: str = _option(
        "", "Prefix of the result keys. It follows from the job's name; another one is an error."
    )
    models: Names = _option((), "Jobs to serve; empty: all that Redis knows; a Redis Cluster knows none.")
    required_models: Names = _option(
        (), "Models without which the front end is not ready; empty: all whose jobs were started and not stopped."
    )
    servable_manager_conf_path: str = _option("", "File servables-conf.yaml of the original: models and their jobs.")
    response_format: ResponseFormat = _option(
        "json", "How /predict writes predictions: json, or the texts of the original: bigdl (0.10 and later), zoo-0.9."
    )

    workers: int = _option(
        1,
        "Processes that answer over HTTP, for a machine with cores to spare; parallelism, maxConnections and "
        "maxBodyMemory are divided among them. gRPC is answered by the first.",
        ge=1,
        le=256,
    )
    parallelism: int = _option(1000, "Most instances in flight; as many more, at least 1000, wait.", ge=1)
    time_window: int = _option(0, "Milliseconds for which instances are gathered, to be sent together.", ge=0)
    count_window: int = _option(
        56, "Most instances that are gathered, 0 for any number; none are with a timeWindow of 0.", ge=0
    )
    token_bucket_enabled: bool = _option(False, "true: limit the rate of requests.")
    tokens_per_second: float = _option(
        100, "Requests a second, for each API key, or for all if there are none; a gRPC stream counts once.", gt=0
    )
    token_acquire_timeout: int = _option(100, "Most milliseconds that a request waits for its token.", ge=0)

    request_timeout: int = _option(
        30_000, "Milliseconds that a request may take; the header X-Timeout-Ms sets fewer.", ge=1
    )
    max_body_bytes: int = _option(64 << 20, "Most bytes in the body of a request.", ge=1)
    max_body_memory: int = _option(
        0, "Most bytes of the bodies of all requests that are not answered; 0: eight times maxBodyBytes.", ge=0
    )
    max_instances: int = _option(
        0,
        "Most instances in a request; 0: as many as maxBodyBytes has KiB, which each counts as. Answers in pieces are "
        "at most 1000.",
        ge=0,
    )
    max_file_bytes: int = _option(
        256 << 20, "Most bytes of the files of all batches, which are in Redis; 0: no batches.", ge=0
    )
    max_connections: int = _option(10_000, "Most connections at a time.", ge=1)
    max_header_bytes: int = _option(64 << 10, "Most bytes in the address and the headers of a request.", ge=1024)
    header_timeout: float = _option(10.0, "Seconds within which the headers of a request must arrive.", gt=0)
    body_timeout: float = _option(60.0, "Seconds within which the body of a request must arrive.", gt=0)
    write_timeout: float = _option(30.0, "Seconds in which a client must read something of its answer.", gt=0)
    keep_alive_timeout: int = _option(75, "Seconds that an idle connection is kept.", ge=0)
    drain_seconds: float = _option(
        1.0, "Seconds after a signal to stop in which requests are still accepted, though it is not ready.", ge=0
    )
    shutdown_timeout: int = _option(20, "Seconds to answer the accepted requests after these.", ge=1)

    api_keys_file: str = _option("", "File of hashed API keys, from `cluster-serving-http hash-key`; empty: no keys.")
    model_secure_enabled: bool | None = _option(
        None, "true: /model-secure takes secrets; empty: only on the loopback interface, or with API keys."
    )
    callback_hosts: Names = _option((), "Hosts that results may be posted to; empty: none.")
    callback_secret: SecretStr = _option(
        "", "Keys that sign callbacks: whsec_ and base64, several with spaces between them; empty: no signatures."
    )
    cors_origins: Names = _option((), "Origins whose pages may use this server from a browser, or *; empty: none.")
    flink_ui_url: str = _option("", "Address of the Flink UI, to which the page /ui links; empty: no link.")
    trace_url: str = _option(
        "", "Address of a trace for the page /ui, with {traceId} in it, such as http://localhost:16686/trace/{traceId}."
    )
    access_log: bool = _option(False, "true: write a line per request, without payloads.")
    log_format: Literal["text", "json"] = _option("text", "json: write each line of the log as JSON.")

    probe_interval: float = _option(2.0, "Seconds without an answer after which a request of zeros tests a job.", gt=0)
    probe_timeout: float = _option(5.0, "Seconds without an answer to it after which a job is not ready.", gt=0)

    @field_validator("interface")
    @classmethod
    def _all_interfaces(cls, value: str) -> str:
        if value != "*":
            return value
        return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - as the option says

    @field_validator("callback_hosts")
    @classmethod
    def _each_is_a_host(cls, value: Names) -> Names:
        for host in value:
            parts = urlsplit(f"//{host}")
            try:
                is_host = parts.netloc == host and bool(parts.hostname) and not host.endswith(":")
                is_host = is_host and not set("*@ ") & {*host} and parts.port != 0
            except ValueError:
                is_host = False
            if not is_host:
                raise ValueError(f"has {host!r}; expected host or host:port, such as hooks.example.com:8443")
        return value

    @property
    def redis_address(self) -> str:
        """URL of Redis; it may hold a password."""
        url = self.redis_url or f"redis://{quote(self.redis_host)}:{self.redis_port}"
        url = url if "://" in url else f"redis://{url}"
        return f"rediss{url.removeprefix('redis')}" if self.redis_secure_enabled and url.startswith("redis:") else url

    @property
    def flink_address(self) -> str:
        """URL of the Flink UI; empty if there is none."""
        url = self.flink_ui_url
        return url if not url or url.startswith(("http://", "https://")) else f"http://{url}"

    @property
    def handover_timeout(self) -> float:
        """Most seconds for which a front end with a new process waits for its clients to leave.

        gRPC varies the age of connections by a tenth.
        """
        return self.drain_seconds + 1.1 * self.grpc_connection_age

    @property
    def longest_answer(self) -> float:
        """Most seconds that it then has for its last answers."""
        return max(self.shutdown_timeout, self.request_timeout / 1000)

    @property
    def url_host(self) -> str:
        """`interface` as the host of a URL: an IPv6 address has brackets."""
        return f"[{self.interface}]" if ":" in self.interface else self.interface

    @property
    def own_host(self) -> str:
        """Host by which this machine reaches the front end."""
        return "localhost" if self.interface in ("0.0.0.0", "::") else self.interface  # noqa: S104

    @property
    def wanted_ports(self) -> dict[str, int]:
        """Ports that nothing else may have, by key. Without a port of its own, gRPC takes another if 8980 is taken."""
        ports = {"port": self.port} if self.plain_http_enabled else {}
        if self.https_enabled:
            ports["securePort"] = self.secure_port
        if self.grpc_enabled and self.has_own_grpc_port:
            ports["grpcPort"] = self.grpc_port
        return ports

    @property
    def has_own_grpc_port(self) -> bool:
        """True if `grpcPort` names a port."""
        return "grpc_port" in self.model_fields_set and self.grpc_port > 0

    @property
    def is_local(self) -> bool:
        """True if only this machine can connect."""
        return self.interface in LOOPBACK

    @property
    def body_memory(self) -> int:
        """`maxBodyMemory`, or its default."""
        return self.max_body_memory or 8 * self.max_body_bytes

    @property
    def places(self) -> int:
        """Most instances in flight of each process."""
        return _share(self.parallelism, self.workers)

    @property
    def most_waiting(self) -> int:
        """Most instances that wait for a place, in each process; a small `parallelism` queues more than it computes."""
        return max(self.parallelism, _MOST_WAITING)

    @property
    def connections_each(self) -> int:
        """Most connections over HTTP of each process."""
        return _share(self.max_connections, self.workers)

    @property
    def body_memory_each(self) -> int:
        """Most bytes of the bodies of each process: its share, or one body, if that is more."""
        return max(self.max_body_bytes, _share(self.body_memory, self.workers))

    @property
    def most_records(self) -> int:
        """Most instances of a request: `maxInstances`, or its default."""
        return self.max_instances or max(1, self.max_body_bytes // RECORD_BYTES)

    def to_json(self) -> str:
        """Return the options that were set, the secret ones as well, for another process of the same front end."""
        return json.dumps(self.model_dump(by_alias=True, exclude_unset=True), default=SecretStr.get_secret_value)

    @classmethod
    def from_json(cls, text: str) -> HttpOptions:
        """Return the options that `to_json` wrote."""
        return cls(**json.loads(text))

    def problem(self) -> str | None:
        """Return the reason why the options cannot be used together; None if they can."""
        job = self.redis_input_queue or DEFAULT_JOB
        # The guides of the original have the prefix of its first versions.
        prefix = JobKeys(job).result("")
        if self.redis_output_queue not in ("", "result:", prefix):
            return (
                f"redisOutputQueue is {self.redis_output_queue!r}, but job {job} writes its results to "
                f"{prefix!r}; leave it out"
            )
        if self.body_memory < self.max_body_bytes:
            return f"maxBodyMemory is {self.max_body_memory}, less than one body may have (maxBodyBytes)"
        try:
            check_login(self.redis_address)
            scheme = urlsplit(self.redis_address).scheme
        except ValueError:
            scheme = ""
        if scheme not in _SCHEMES:
            return (
                "redisUrl is not an address such as redis://user:password@host:port/db, redis+sentinel://host:port/"
                f"service or redis+cluster://host:port; {HINT}"
            )
        if is_cluster_url(self.redis_address) and not (
            self.models or self.redis_input_queue or self.servable_manager_conf_path
        ):
            return "a Redis Cluster does not say which jobs it has: name them in models"
        if not self.https_enabled:
            return None if self.plain_http_enabled else "plainHttpEnabled is false, and httpsEnabled is not true"
        if not self.https_key_store_path and not (self.https_certificate_path and self.https_private_key_path):
            return (
                "httpsEnabled needs httpsKeyStorePath (PKCS12), or httpsCertificatePath and httpsPrivateKeyPath (PEM)"
            )
        return None


def _share(limit: int, workers: int) -> int:
    return -(-limit // workers)
