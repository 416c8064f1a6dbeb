"""What all APIs have in common: unknown paths and methods, and requests of other origins."""

import httpx
import pytest


def test_pages_of_other_origins_are_let_in_only_if_listed(serve):
    ask = {"origin": "https://a.example", "access-control-request-method": "POST"}
    closed = httpx.options(f"{serve().url}/predict", headers=ask)
    assert "access-control-allow-origin" not in closed.headers
    opened = httpx.options(f"{serve('--corsOrigins=https://a.example').url}/predict", headers=ask)
    assert opened.headers["access-control-allow-origin"] == "https://a.example"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nowhere", 404, "NOT_FOUND"), ("GET", "/predict", 405, "METHOD_NOT_ALLOWED")],
)
def test_other_paths_and_methods_are_refused_like_everything_else(serve, method, path, status, code):
    answer = httpx.request(method, serve().url + path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert path in answer.json()["error"]
    assert ("allow" in answer.headers) is (status == 405)
