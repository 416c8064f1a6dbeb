"""Parameters of a query are obeyed or refused."""

import httpx
import pytest


@pytest.fixture
def url(serve, report, echo):
    report(("x", "float32", (None, None)))
    return serve().url


@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("POST", "/predict?responseFromat=json", "there is no query parameter 'responseFromat' at /predict; there is"),
        ("POST", "/v1/models/{job}:predict?responseFormat=json", "at /v1/models/{name}:predict; it takes none"),
        ("POST", "/v1/completions?api-version=1", "there is no query parameter 'api-version' at /v1/completions"),
        ("GET", "/v1/files?limt=3", "there is limit, "),
        ("GET", "/v1/batches?order=asc", "there is no query parameter 'order' at /v1/batches; there is after, limit"),
        ("GET", "/v1/files?limit=1&limit=2", "the query has 'limit' 2 times; expected it once"),
        ("GET", "/v1/files?limit=0", "'limit' is '0'; expected a whole number from 1 to 10000"),
        ("GET", "/v1/files?limit=", "'limit' is ''"),
        ("GET", "/v1/files?order=up", "'order' is 'up'; expected asc or desc"),
        ("GET", "/v1/files?%ff=1", "the query is not UTF-8"),
        ("GET", "/v2/models/{job}/ready?x", "there is no query parameter 'x' at /v2/models/{name}/ready"),
        ("GET", "/ui/models/{job}?sinse=1", "there is since"),
        ("GET", "/metrics?format=prometheus", "it takes none; /docs lists the API"),
    ],
)
def test_a_parameter_that_a_path_does_not_take_is_refused(url, job, method, path, error):
    answer = httpx.request(method, url + path.replace("{job}", job))
    assert answer.status_code == 400
    told = answer.json()["error"]
    assert error in (told["message"] if isinstance(told, dict) else told)


@pytest.mark.parametrize("path", ["/health/live", "/v2/health/ready", "/docs", "/ui", "/openapi.json", "/"])
def test_pages_and_health_leave_a_query_out(url, path):
    assert httpx.get(f"{url}{path}?nocache=1&nocache=2").status_code == 200


def test_what_a_path_takes_is_obeyed(url):
    answer = httpx.post(f"{url}/predict?responseFormat=bigdl", json={"instances": [{"x": [1.0]}]})
    assert isinstance(answer.json()["predictions"][0], str)
