"""Machines in one: network and mount namespaces as hosts of their own, on one bridge; they need root and iproute2."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NETWORK = "10.91.7"
USER = "20117"
SWITCH = "cs-switch"
BRIDGE = "cs-bridge"
_HOST = "cs-host"
_OWN = "cs-veth0"


def require():
    """Skip the test where hosts cannot be made."""
    missing = [name for name in ("ip", "unshare", "setpriv") if not shutil.which(name)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"hosts of their own need root and the programs ip, unshare and setpriv; missing: {missing}")
    made = subprocess.run(["ip", "netns", "add", "cs-probe"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"network namespaces cannot be made here: {made.stderr.strip()}")
    _ip("netns", "delete", "cs-probe")


def folder(name):
    """Make a folder that other users can read, outside of what hosts hide."""
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir="/var/tmp"))
    path.chmod(0o755)
    return path


class Host:
    """A machine with an address, a user and a folder of its own, and nothing of this project.

    It sees the system's programs, a Java and `shared` folders. Hidden are this repository, its Python, and the homes
    and temporary folders of this machine.
    """

    def __init__(self, number, shared):
        self.name = f"{_HOST}{number}"
        self.address = f"{NETWORK}.{number}"
        self.folder = folder(self.name)
        os.chown(self.folder, int(USER), int(USER))
        self._link = f"cs-veth{number}"
        self._shared = shared
        self._started = []
        _ip("netns", "add", self.name)
        _plug_in(self._link, "eth0", self.name, self.address)

    def start(self, *command, **environment):
        """Start a program as the user of the host, in its folder, with an environment of these variables alone."""
        hidden = {str(ROOT), sys.prefix, sys.base_prefix, str(Path.home()), "/home", tempfile.gettempdir()} - {"/usr"}
        visible = list(enumerate([*self._shared, self.folder]))
        enter = ["mount -t tmpfs none /mnt"]
        enter += [f"mkdir /mnt/{n} && mount --bind '{path}' /mnt/{n}" for n, path in visible]
        # Deepest first: a folder that is hidden has no folders to hide.
        enter += [f"mount -t tmpfs -o mode=1777 none '{path}'" for path in sorted(hidden, reverse=True)]
        enter += [f"mkdir -p '{path}' && mount --bind /mnt/{n} '{path}'" for n, path in visible]
        enter += [
            "for p in /usr/bin/python3* /usr/local/bin/python3*; do test -e $p && mount --bind /dev/null $p; done"
        ]
        enter += [f"cd '{self.folder}'", 'exec "$@"']
        variables = {"HOME": self.folder, "PATH": "/usr/bin:/bin", "TMPDIR": self.folder} | environment
        run = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "env", "-i"]
        run += [f"{name}={value}" for name, value in variables.items()]
        inside = ["ip", "netns", "exec", self.name, "unshare", "--mount", "sh", "-c", "; ".join(enter), "sh"]
        with (self.folder / "output.log").open("ab") as output:
            process = subprocess.Popen(
                [*inside, *run, *map(str, command)], stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._started.append(process)

    def cut_off(self):
        """Pull the plug of its network."""
        _ip("-n", SWITCH, "link", "set", self._link, "down")

    def reconnect(self):
        _ip("-n", SWITCH, "link", "set", self._link, "up")

    def kill(self):
        """Kill all that runs on it."""
        _kill_all(self.name)
        for process in self._started:
            process.wait()
        self._started.clear()

    def remove(self):
        self.kill()
        _ip("netns", "delete", self.name)
        shutil.rmtree(self.folder, ignore_errors=True)


class Network:
    """A switch with hosts; this machine is on it as `address`.

    The switch is in a namespace of its own, so that no firewall of this machine has a say.
    """

    address = f"{NETWORK}.1"

    def __init__(self, *shared):
        self._shared = shared
        self.hosts = []

    def __enter__(self):
        _remove_left()
        _ip("netns", "add", SWITCH)
        _ip("-n", SWITCH, "link", "add", BRIDGE, "type", "bridge")
        _ip("-n", SWITCH, "link", "set", BRIDGE, "up")
        _plug_in("cs-veth1", _OWN, None, self.address)
        return self

    def host(self):
        self.hosts.append(Host(len(self.hosts) + 11, self._shared))
        return self.hosts[-1]

    def __exit__(self, *exc):
        for host in self.hosts:
            host.remove()
        _ip("netns", "delete", SWITCH)


def _plug_in(plug, device, namespace, address):
    """Connect a namespace, or this machine, to the switch."""
    inside = ["-n", namespace] if namespace else []
    _ip(
        "-n",
        SWITCH,
        "link",
        "add",
        plug,
        "type",
        "veth",
        "peer",
        "name",
        device,
        "netns",
        namespace or str(os.getpid()),
    )
    _ip("-n", SWITCH, "link", "set", plug, "master", BRIDGE, "up")
    _ip(*inside, "addr", "add", f"{address}/24", "dev", device)
    _ip(*inside, "link", "set", device, "up")
    if namespace:
        _ip(*inside, "link", "set", "lo", "up")


def _remove_left():
    """Remove the network that a run has left that was killed."""
    for name in [line.split()[0] for line in _ip("netns", "list").splitlines()]:
        if name == SWITCH or name.startswith(_HOST):
            _kill_all(name)
            _ip("netns", "delete", name)
    # The kernel takes its time to remove what was in a namespace.
    if Path("/sys/class/net", _OWN).exists():
        _ip("link", "delete", _OWN)


def _kill_all(namespace):
    for pid in map(int, _ip("netns", "pids", namespace).split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _ip(*arguments):
    ran = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, (arguments, ran.stderr)
    return ran.stdout
