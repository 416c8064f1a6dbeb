"""Runs commands in forks of a process that has imported them: Python's start and the imports are half of their time.

Usage: python forks.py DESCRIPTOR MODULE... . Messages come through the socket of that descriptor, each a JSON list: the
arguments of a command, which begin with the path of an installed script, its folder and its variables. With a message
come four descriptors: the three streams of the command, and a file for its process id and its exit status, a line each.
"""

import json
import os
import runpy
import signal
import socket
import sys
from importlib import import_module


def receive(control):
    """Fork a process for each message. Return the arguments of its command there, and None at the end of the socket."""
    # Each process that waits for a command ends by itself.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 4)
        if not message:
            return None
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            arguments, folder, variables = json.loads(message)
            status = os.fdopen(descriptors.pop(), "w", buffering=1)
            if (pid := os.fork()) == 0:
                status.close()
                control.close()
                become(descriptors, folder, variables)
                return arguments
            print(pid, file=status)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=status)
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def become(streams, folder, variables):
    """Give this process its streams, its folder and its variables."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        import_module(name)
    found = receive(socket.socket(fileno=int(sys.argv[1])))
    if found:
        sys.argv[:] = found
        sys.path[0] = os.path.dirname(found[0])
        runpy.run_path(found[0], run_name="__main__")
