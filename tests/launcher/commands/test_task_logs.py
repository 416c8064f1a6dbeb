"""Lines of TaskManagers, from Flink's REST API."""

import json
from http.server import BaseHTTPRequestHandler
from itertools import islice
from urllib.parse import unquote

import pytest

from cluster_serving.launcher.commands import task_logs
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_rest import FlinkRest
from tests.support.fixtures.http_server import HttpServer


@pytest.fixture
def server():
    """A REST API of Flink with the files of one TaskManager, which notes the files that it sends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = unquote(self.path).removeprefix("/taskmanagers/tm/logs/")
            if name in server.files:
                server.sent.append(name)
                content = server.files[name].encode()
            else:
                logs = [{"name": name, "size": len(text)} for name, text in server.files.items()]
                managers = [
                    {"id": name, "path": f"pekko.tcp://flink@{name}:1/user/rpc/taskmanager_0"}
                    for name in server.managers
                ]
                content = json.dumps({"logs": logs, "taskmanagers": managers}).encode()
            self.send_response(500 if "/frozen/" in self.path else 200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with HttpServer(Handler) as server:
        server.managers = ["tm"]
        server.files, server.sent = {"a.log": "1\n2\n", "b.out": "x\n", "empty.err": ""}, []
        yield server


def test_only_files_that_have_changed_are_sent_again(server, monkeypatch):
    monkeypatch.setattr(task_logs, "_POLL_S", 0)
    with FlinkRest(server.url) as flink:
        found = task_logs.lines(flink, follow=True, errors=False)
        assert [line for _, line in islice(found, 3)] == ["1", "2", "x"]
        # A line shows once it is complete, and a file that was begun anew from its start.
        for content, lines in (("1\n2\n3\nhal", ["3"]), ("1\n2\n3\nhalf\n", ["half"]), ("new\n", ["new"])):
            server.files["a.log"] = content
            assert [line for _, line in islice(found, 1)] == lines
    assert server.sent == ["a.log", "b.out", "a.log", "a.log", "a.log"]


def test_a_task_manager_that_hangs_is_named_after_the_lines_of_the_others(server, caplog, monkeypatch):
    monkeypatch.setattr(task_logs, "_POLL_S", 0)
    server.managers = ["frozen", "tm"]
    with FlinkRest(server.url) as flink:
        found = task_logs.lines(flink, follow=False, errors=False)
        assert [next(found) for _ in range(3)] == [("tm:1", "1"), ("tm:1", "2"), ("tm:1", "x")]
        with pytest.raises(LaunchError, match="TaskManager frozen:1 sends no lines: its process hangs"):
            next(found)
        lines = task_logs.lines(flink, follow=True, errors=False)
        assert [line for _, line in islice(lines, 3)] == ["1", "2", "x"]
        server.files["a.log"] += "3\n"
        assert next(lines) == ("tm:1", "3")
    assert [message.partition(" sends")[0] for message in caplog.messages] == ["TaskManager frozen:1"]


def test_only_lines_of_trouble_are_errors():
    levels = ["2026-01-02 03:04:05,678 INFO  a", "2026-01-02 03:04:05,678 ERROR b", "java.lang.X", "\tat c"]
    assert list(task_logs.chosen(levels, errors=True)) == levels[1:]
    # What engines print has no levels.
    printed = ["Loaded 3 layers", "Traceback (most recent call last):", "  File a.py", "ValueError: b", "done"]
    assert list(task_logs.chosen(printed, errors=True)) == printed[1:4]
    assert list(task_logs.chosen(printed, errors=False)) == printed
    # So does a JVM that dies.
    dying = ["#", "# A fatal error has been detected:", "#", "#  SIGSEGV (0xb) at pc=0x1", "# Core dump: no", "bye"]
    assert list(task_logs.chosen(dying, errors=True)) == dying[:5]
