"""What all APIs have in common: unknown paths and methods, and requests of other origins."""

import subprocess
import sys

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


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/models/m%20x/predict/", "../predict"),
        ("/zoo-0.9/predict/", "../predict"),
        ("/models/m%20x/?a=b", "../m%20x?a=b"),
        ("/v1/models/m:predict/", "../m:predict"),
    ],
)
def test_a_surplus_slash_is_redirected_relative_to_what_the_client_asked(serve, path, location):
    answer = httpx.post(serve().url + path, headers={"host": "other:1"})
    assert (answer.status_code, answer.headers["location"]) == (307, location)


def test_other_slashes_are_not_redirected(serve):
    url = serve().url
    assert [httpx.get(url + path).status_code for path in ("//docs/", "/docs//", "/docs%2F", "/none/")] == [404] * 4


def test_a_front_end_that_posts_nothing_imports_neither_pandas_nor_a_client_of_http():
    code = "import sys, cluster_serving.frontend.app; print({'pandas', 'httpx', 'rich'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
