"""Real Redis servers that know of one another: a master with a replica and Sentinels, and a cluster."""

import subprocess
import time
from contextlib import contextmanager

import redis

from cluster_serving.launcher.services import redis_program
from tests.support.redis_server import free_port
from tests.support.waiting import wait_until

EXECUTABLE = redis_program.find()


@contextmanager
def servers():
    """Collects servers, each by passing it to what this gives, and stops them at the end."""
    started = []

    def running(server):
        started.append(server)
        server.wait()
        return server

    try:
        yield running
    finally:
        for server in started:
            server.kill()


class Server:
    """One server."""

    def __init__(self, folder, *arguments, port=None):
        # The port that nodes of a cluster use among themselves is 10,000 higher, and has to exist.
        most = 55_000 if "--cluster-enabled" in arguments else 65_536
        self.port = port or next(port for port in iter(free_port, None) if port < most)
        self.folder = folder / str(self.port)
        self.folder.mkdir()
        self._arguments = arguments
        self.start()

    def start(self):
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        self.process = subprocess.Popen(
            [EXECUTABLE, *self._config(), *options, *self._arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.client = redis.Redis(port=self.port, decode_responses=True)

    def wait(self):
        """Return when it answers."""
        wait_until(self._answers)

    def kill(self):
        self.client.close()
        self.process.kill()
        self.process.wait(10)

    def _config(self):
        return []

    def _answers(self):
        assert self.process.poll() is None, self.folder
        try:
            return self.client.ping()
        except redis.ConnectionError:
            return False


class SentinelServer(Server):
    """A Sentinel that watches one master."""

    def __init__(self, folder, master_port):
        self._master_port = master_port
        super().__init__(folder, "--sentinel")

    def _config(self):
        conf = self.folder / "sentinel.conf"
        conf.write_text(
            f"sentinel monitor mymaster 127.0.0.1 {self._master_port} 1\n"
            "sentinel down-after-milliseconds mymaster 500\n"
            "sentinel failover-timeout mymaster 5000\n"
        )
        return [str(conf)]


class Sentinels:
    """A master, a replica and two Sentinels of which one has to agree."""

    def __init__(self, folder, running):
        self.master = running(Server(folder))
        self.replica = running(Server(folder, "--replicaof", "127.0.0.1", str(self.master.port)))
        wait_until(lambda: self.replica.client.info("replication")["master_link_status"] == "up")
        self.sentinels = [running(SentinelServer(folder, self.master.port)) for _ in range(2)]
        wait_until(lambda: all(self._knows_replica(sentinel) for sentinel in self.sentinels))
        nodes = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        self.url = f"redis+sentinel://{nodes}/mymaster/0"

    @staticmethod
    def _knows_replica(sentinel):
        return sentinel.client.sentinel_masters()["mymaster"]["num-slaves"] == 1


class Cluster:
    """Three masters that share the hash slots."""

    def __init__(self, folder, running):
        self.nodes = [
            running(Server(folder, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")) for _ in range(3)
        ]
        for index, node in enumerate(self.nodes):
            first, last = 16384 * index // 3, 16384 * (index + 1) // 3
            node.client.execute_command("CLUSTER ADDSLOTS", *range(first, last))
            node.client.execute_command("CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
        wait_until(lambda: all(self._is_whole(node) for node in self.nodes))
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def owner(self, slot):
        """The node that has a slot."""
        (row,) = (row for row in self.nodes[0].client.execute_command("CLUSTER SLOTS") if row[0] <= slot <= row[1])
        return next(node for node in self.nodes if node.port == row[2][1])

    def move(self, slot, target):
        """Give a slot that holds nothing to another node."""
        name = target.client.execute_command("CLUSTER MYID")
        # Its claim has to be the latest: the gossip of the owner before would take the slot back.
        target.client.execute_command("CLUSTER BUMPEPOCH")
        for node in (target, *self.nodes):
            node.client.execute_command("CLUSTER SETSLOT", slot, "NODE", name)

    def _is_whole(self, node):
        info = node.client.execute_command("CLUSTER INFO")
        return info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == 3


def eventually(action, errors, seconds=60):
    """Repeat an action as long as it raises these errors; returns what it returns."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return action()
        except errors:
            assert time.monotonic() < deadline, "did not work in time"
