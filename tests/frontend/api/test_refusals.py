"""What a client is told that sends something else than JSON, or a text where the model takes none."""

import httpx
import pytest

PNG = b"\x89PNG\r\n\x1a\n0000"


def told(url, **body):
    answer = httpx.post(f"{url}/predict", **body)
    assert answer.status_code == 400
    return answer.json()["error"]


@pytest.fixture
def url(serve, report, echo):
    report(("age", "float64", (None,)), ("image", "uint8", (None, None, None, 3)))
    return serve().url


@pytest.mark.parametrize("body", [{"content": PNG}, {"files": {"file": PNG}}])
def test_a_picture_is_to_be_sent_in_base64(url, body):
    assert 'send {"instances": [{"NAME": {"b64": "…"}}]} with the name of the input' in told(url, **body)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/batches", "/v2/repository/index"])
def test_a_form_is_no_body_of_a_path_without_files(url, path):
    for form, kind in ({"files": {"file": PNG}}, "a form"), ({"data": {"model": "a b"}}, "a form (name=value)"):
        error = httpx.post(f"{url}{path}", **form).json()["error"]
        text = error if isinstance(error, str) else error["message"]
        assert text == f"the body is {kind}; expected a JSON object"


def test_a_picture_of_v2_is_a_tensor(url, job):
    error = httpx.post(f"{url}/v2/models/{job}/infer", content=PNG).json()["error"]
    assert '"datatype": "BYTES"' in error


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_does_not_have_is_null(url, number):
    error = told(url, content=f'{{"instances": [{{"age": {number}}}]}}')
    assert error == f"the body has {number}, which is not JSON; send null for a missing value"


def test_a_text_is_refused_by_what_the_input_takes(url):
    picture = "base64 of nothing"

    def error(**row):
        return told(url, json={"instances": [{"age": 1.0, "image": picture, **row}]})

    assert "age is 'old'; expected a number; the model expects age: float64[?]" in error(age="old")
    assert "is the text 'cats/cat.png', as of a file: send the content of the file in base64" in error(
        image="cats/cat.png"
    )
    assert f"is the text {picture!r}, which is not an image in base64; the model expects image" in error()
