"""The ResourceManager's REST API, over HTTP."""

import json
from http.server import BaseHTTPRequestHandler

import pytest

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.targets.yarn.rest import ACTIVE, YarnRest
from tests.support.fixtures.http_server import HttpServer
from tests.support.fixtures.redis_server import free_port


@pytest.fixture
def manager():
    """Serves answers by their paths; returns its URL."""
    servers = []

    def serve(answers):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                path = self.path.removeprefix("/ws/v1/cluster/").partition("?")[0]
                body = json.dumps(answers.get(path, {})).encode()
                self.send_response(200 if path in answers else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        servers.append(HttpServer(Handler))
        return servers[-1].url

    yield serve
    for server in servers:
        server.stop()


def test_the_manager_that_answers_is_asked(manager):
    alive = manager({"info": {}})
    with YarnRest([f"http://127.0.0.1:{free_port()}", alive]) as rest:
        rest.check()
        assert rest.url == alive


def test_the_latest_application_comes_first(manager):
    raw = [{"id": "a", "startedTime": 1}, {"id": "b", "startedTime": 2}]
    with YarnRest([manager({"apps": {"apps": {"app": raw}}})]) as rest:
        assert [found["id"] for found in rest.applications(ACTIVE, "user", "tag")] == ["b", "a"]


def test_a_manager_without_applications_has_none(manager):
    with YarnRest([manager({"apps": {"apps": None}})]) as rest:
        assert rest.applications(ACTIVE) == []
        assert rest.application("application_1_1") is None


def test_what_does_not_answer_is_named():
    url = f"http://127.0.0.1:{free_port()}"
    with YarnRest([url]) as rest, pytest.raises(LaunchError, match=f"{url} does not answer"):
        rest.check()
