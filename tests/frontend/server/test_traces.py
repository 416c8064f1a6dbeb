"""Names of the spans of HTTP requests."""

from types import SimpleNamespace

import pytest

from cluster_serving.frontend.server.traces import _route


@pytest.mark.parametrize("name", ["m", "model", "a.b"])
@pytest.mark.parametrize("path", ["/models/{name}/predict", "/v1/models/{name}:predict", "/models/{name}"])
def test_a_span_has_the_path_with_the_names_of_its_parameters(name, path):
    scope = {"path": path.format(name=name), "path_params": {"name": name}, "call": SimpleNamespace(protocol="v1")}
    assert _route(scope) == f" {path}"
