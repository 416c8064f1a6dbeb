"""TLS: HTTPS, gRPC and Redis, with PEM and PKCS12 files."""

import ssl

import grpc
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    NoEncryption,
    load_pem_private_key,
    pkcs12,
)

from cluster_serving.frontend import arguments
from cluster_serving.frontend.errors import StartError
from cluster_serving.frontend.proto import inference
from cluster_serving.frontend.server import tls
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.grpc_calls import caller
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.tls import TLSProxy, write_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Files of an authority and of a server at 127.0.0.1: `ca.pem`, `cert.pem`, `key.pem`, and PKCS12 of each."""
    folder = tmp_path_factory.mktemp("tls")
    write_certificates(folder)
    chain, mark, key = (folder / "server.pem").read_bytes().partition(b"-----BEGIN PRIVATE KEY-----")
    (folder / "cert.pem").write_bytes(chain)
    (folder / "key.pem").write_bytes(mark + key)
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    (folder / "ca.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(b"ca", None, None, [authority], NoEncryption())
    )
    server = x509.load_pem_x509_certificate(chain), load_pem_private_key(mark + key, None)
    (folder / "store.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(b"k", server[1], server[0], None, BestAvailableEncryption(b"1234qwer"))
    )
    return folder


@pytest.mark.parametrize("kind", ["pem", "pkcs12"])
def test_https_is_served_beside_http(serve, certificates, kind):
    if kind == "pem":
        given = [f"--httpsCertificatePath={certificates}/cert.pem", f"--httpsPrivateKeyPath={certificates}/key.pem"]
    else:
        given = [f"--httpsKeyStorePath={certificates}/store.p12", "--httpsKeyStoreToken=1234qwer"]
    plain, secure, _ = serve("--httpsEnabled=true", *given).urls
    assert plain.startswith("http://")
    trust = ssl.create_default_context(cafile=certificates / "ca.pem")
    with httpx.Client(verify=trust) as client:
        assert client.get(f"{secure}/health/live").status_code == 200
    assert httpx.get(f"{plain}/health/live").status_code == 200
    alone, _ = serve("--httpsEnabled=true", "--plainHttpEnabled=false", *given).urls
    assert alone.startswith("https://")


def test_a_key_store_that_cannot_be_used_is_named(certificates):
    def context(*given):
        return tls.server_context(arguments.read(["--httpsEnabled=true", *given], {}))

    with pytest.raises(StartError, match=r"store\.p12 cannot be read as PKCS12 with the given password") as caught:
        context(f"--httpsKeyStorePath={certificates}/store.p12", "--httpsKeyStoreToken=hidden")
    assert "hidden" not in str(caught.value)
    (certificates / "store.jks").write_bytes(b"\xfe\xed\xfe\xed...")
    with pytest.raises(StartError, match="keytool -importkeystore"):
        context(f"--httpsKeyStorePath={certificates}/store.jks")
    with pytest.raises(StartError, match="none"):
        context("--httpsCertificatePath=/none", "--httpsPrivateKeyPath=/none")


def test_tls_is_that_of_https(serve, report, echo, job, certificates):
    report(("x", "", (None, None)))
    options = [f"--httpsCertificatePath={certificates}/cert.pem", f"--httpsPrivateKeyPath={certificates}/key.pem"]
    front = serve("--httpsEnabled=true", *options)
    assert front.urls[-1].startswith("grpcs://127.0.0.1:")
    credentials = grpc.ssl_channel_credentials((certificates / "ca.pem").read_bytes())
    with grpc.secure_channel(front.grpc, credentials) as channel:
        call = caller(channel, "inference.GRPCInferenceService")
        assert call("ServerLive", inference.ServerLiveRequest(), inference.ServerLiveResponse).live


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize("kind", ["pem", "p12"])
def test_redis_is_checked_against_a_trust_store(redis_server, report, job, certificates, kind):
    report(("x", "float32", (None, None)))
    port = free_port()
    proxy = TLSProxy(certificates / "server.pem", port, redis_server.port)
    words = ["--redisHost=127.0.0.1", f"--redisPort={port}", "--redisSecureEnabled", "--port=0", "--grpcPort=0"]
    words += [f"--redissTrustStorePath={certificates}/ca.{kind}", f"--redisInputQueue={job}"]
    running = Running(arguments.read(words, {}))
    try:
        response = httpx.post(f"{running.url}/predict", json={"instances": [{"x": [1, 2]}]}, timeout=30)
        assert response.json() == {"predictions": [{"value": [1, 2]}]}
    finally:
        running.stop()
        proxy.close()
