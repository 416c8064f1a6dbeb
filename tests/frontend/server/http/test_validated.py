"""Validators: pages and documents that a client has are not sent again."""

import httpx
import pytest


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize(
    "path",
    ["/ui", "/ui/app.js", "/docs", "/openapi.json", "/models/vectors/openapi.json"],
)
def test_what_a_client_has_already_is_not_sent_again(serve, path):
    with httpx.Client(base_url=serve("--models=vectors").url) as client:
        first = client.get(path)
        tag = first.headers["etag"]
        assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache")
        assert client.head(path).headers["etag"] == tag
        for named in (tag, f'"other", W/{tag}', "*"):
            known = client.get(path, headers={"if-none-match": named})
            assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
            assert "content-length" not in known.headers
        for named in ('"other"', tag[1:-1], ""):
            assert client.get(path, headers={"if-none-match": named}).content == first.content
