"""Certificates, and a proxy that speaks TLS."""

import asyncio
import datetime
import ipaddress
import socket
import ssl
import threading

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificates(folder):
    """`ca.pem`, and `server.pem` with its key, for 127.0.0.1."""
    now = datetime.datetime.now().astimezone()
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])

    def certificate(name, key, *extensions):
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(1))
        builder = builder.not_valid_after(now + datetime.timedelta(1))
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    (folder / "ca.pem").write_bytes(certificate(issuer, authority, x509.BasicConstraints(True, None)))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "redis")])
    key = server.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(certificate(name, server, address) + key)


class TLSProxy:
    """Takes TLS connections and passes what they say on to a port of this machine."""

    def __init__(self, certificate, port, target):
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", port))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self):
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=[raw])
            self._threads.append(thread)
            thread.start()

    def _serve(self, raw):
        try:
            with self._context.wrap_socket(raw, server_side=True) as outside:
                asyncio.run(self._pass_on(outside))
        except OSError:
            raw.close()  # the client does not trust us, or has gone

    async def _pass_on(self, outside):
        # Both directions of a TLS connection in one thread: OpenSSL's objects are not for two.
        with socket.create_connection(("127.0.0.1", self._target)) as inside:
            outside.setblocking(False)
            inside.setblocking(False)
            loop = asyncio.get_running_loop()
            done = asyncio.Event()

            def pump(source, sink):
                try:
                    while data := source.recv(65536):
                        sink.setblocking(True)
                        sink.sendall(data)
                        sink.setblocking(False)
                        if not getattr(source, "pending", lambda: 0)():
                            return
                except (ssl.SSLWantReadError, BlockingIOError):
                    return
                except OSError:
                    pass
                done.set()

            loop.add_reader(outside, pump, outside, inside)
            loop.add_reader(inside, pump, inside, outside)
            await done.wait()
            loop.remove_reader(outside)
            loop.remove_reader(inside)
