"""The paths and the JSON of the original's HTTP server."""

import json
import re

import httpx
import numpy as np
import pytest

from cluster_serving.client import InvalidInput, original
from cluster_serving.frontend.api.original import instances
from cluster_serving.frontend.api.original.predictions import body, written
from cluster_serving.protocol.keys import MODEL_SECRET_KEY, JobKeys
from cluster_serving.protocol.slots import SlotReport
from cluster_serving.protocol.tensors import decode
from tests.support.fixtures.waiting import wait_until

MIXED = {
    "intScalar": 12345,
    "floatScalar": 3.14159,
    "stringScalar": "hello, world. hello, arrow.",
    "intTensor": [7756, 9549, 1094],
    "floatTensor": [0.6804766, 0.30136853],
    "stringTensor": ["come", "on", "united"],
    "intTensor2": [[1, 2], [3, 4], [5, 6]],
    "floatTensor2": [[[0.2, 0.3], [0.5, 0.6]], [[0.2, 0.3], [0.5, 0.6]]],
    "stringTensor2": [[[["come", "on"]], [["come", "on"]]]],
}


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "HEAD"])
def test_the_root_says_welcome_in_the_words_of_every_version(ask, method):
    response = ask.request(method, "/")
    assert response.status_code == 200
    assert method == "HEAD" or response.text.splitlines() == [
        "welcome to BigDL web serving frontend",
        "welcome to analytics zoo web serving frontend",
    ]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "application/json", "", "image/png"])
def test_instances_are_answered_in_order_whatever_the_content_type(ask, kind):
    body = json.dumps({"instances": [{"x": [n, n + 0.5]} for n in range(5)]})
    response = ask.post("/predict", content=body, headers={"content-type": kind})
    assert response.status_code == 200
    assert response.json() == {"predictions": [{"value": [n, n + 0.5]} for n in range(5)]}


@pytest.mark.usefixtures("echo")
def test_every_kind_of_value_of_the_guide_arrives(serve, report):
    dtypes = {"intTensor": "int64", "stringScalar": "str", "stringTensor": "str", "stringTensor2": "str"}
    report(*((name, dtypes.get(name, "float32"), None) for name in MIXED))
    response = httpx.post(f"{serve().url}/predict", json={"instances": [MIXED, MIXED]}, timeout=30)
    assert response.status_code == 200, response.text
    for prediction in response.json()["predictions"]:
        value = prediction["value"]
        for name, sent in MIXED.items():
            expected = [sent] if np.ndim(sent) == 0 else sent
            if dtypes.get(name):
                assert value[name] == expected
            else:
                np.testing.assert_allclose(value[name], expected, rtol=1e-6)


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize("dtype", ["str", ""])
def test_texts_are_strings_where_the_model_takes_strings_or_says_nothing(serve, report, dtype):
    report(("t", dtype, None))
    response = httpx.post(f"{serve().url}/predict", json={"instances": [{"t": "hello, world"}]}, timeout=30)
    assert response.json() == {"predictions": [{"value": ["hello, world"]}]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/predict", {"value": [1.0, 2.5]}),
        ("/predict?responseFormat=bigdl", '{"value":"{\\"data\\":[1.0,2.5],\\"shape\\":[2]}"}'),
        ("/bigdl/predict", '{"value":"{\\"data\\":[1.0,2.5],\\"shape\\":[2]}"}'),
        ("/zoo-0.9/predict", "{value=data=[1.0,2.5],shape=[2];}"),
    ],
)
def test_predictions_are_written_as_asked(ask, path, expected):
    assert ask.post(path, json={"instances": [{"x": [1, 2.5]}]}).json() == {"predictions": [expected]}


@pytest.mark.parametrize("prefix", ["bigdl", "zoo-0.9"])
def test_every_path_may_begin_with_a_form(ask, job, prefix):
    body = {"instances": [{"x": [1, 2.5]}]}
    one, other = (ask.post(f"{path}/{job}/versions/1/predict", json=body) for path in (f"/{prefix}/models", "/models"))
    asked = ask.post(f"/models/{job}/versions/1/predict?responseFormat={prefix}", json=body)
    assert one.json() == asked.json() != other.json()
    assert ask.get(f"/{prefix}/models").json() == ask.get("/models").json()
    assert {row["name"] for row in ask.get(f"/{prefix}/metrics").json()} >= {"zoo.serving.request.predict"}
    assert ask.get(f"/{prefix}").text == ask.get(f"/{prefix}/").text == ask.get("/").text
    assert ask.get(f"/{prefix}/{prefix}").status_code == 404


RANKED = [[(2, 0.3529831), (0, 1e-4)]]


@pytest.mark.parametrize(
    ("outputs", "filter_text", "zoo", "bigdl"),
    [
        (RANKED, "topN(2)", "{value=[[2,0.3529831][0,1.0E-4]]}", '{"value":"[[2,0.3529831][0,1.0E-4]]"}'),
        (
            {"y": np.array([[1, 2], [3, 0.1]], "f4")},
            "pickTopN(2)",
            "{value=[[1.0,2.0][3.0,0.1]]}",
            '{"value":"[[1.0,2.0][3.0,0.1]]"}',
        ),
        (
            {"y": np.array([[7]])},
            "",
            "{value=data=[7.0],shape=[1,1];}",
            r'{"value":"{\"data\":[7.0],\"shape\":[1,1]}"}',
        ),
        (InvalidInput("why"), "", "{value=NaN}", '{"value":"NaN"}'),
    ],
)
def test_texts_are_those_of_the_original_to_the_character(outputs, filter_text, zoo, bigdl):
    assert written(outputs, "zoo-0.9", filter_text) == zoo
    assert written(outputs, "bigdl", filter_text) == bigdl


@pytest.mark.parametrize(
    ("agent", "path", "kind", "is_text"),
    [
        ("python-httpx/0.13.3", "/predict", None, True),
        ("python-httpx/0.9.0", "/predict", None, True),
        ("python-httpx/0.13.3", "/predict", "application/json", False),
        ("python-httpx/0.13.3", "/json/predict", None, False),
        ("python-httpx/0.13.3", "/predict?responseFormat=json", None, False),
        ("python-httpx/0.15.0", "/predict", None, False),
        ("python-httpx/0.28.1", "/predict", None, False),
    ],
)
def test_the_original_client_gets_text_from_the_plain_address_and_others_json(ask, agent, path, kind, is_text):
    headers = {"user-agent": agent} | ({"content-type": kind} if kind else {})
    answer = ask.post(path, content='{"instances": [{"x": [1, 2.5]}]}', headers=headers)
    (prediction,) = answer.json()["predictions"]
    assert prediction == ('{"value":"{\\"data\\":[1.0,2.5],\\"shape\\":[2]}"}' if is_text else {"value": [1, 2.5]})


@pytest.mark.parametrize("body", ['{"instances": [[1, 2.5], [3]]}', "[[1, 2.5], [3]]", '\ufeff[{"x": [1, 2.5]}, [3]]'])
def test_rows_of_the_only_input_need_no_name(ask, report, body):
    report(("x", "float32", (None, None)))
    predictions = ask.post("/predict", content=body.encode()).json()["predictions"]
    assert predictions == [{"value": [1, 2.5]}, {"value": [3]}]


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (np.array(0.1, "f4"), b"0.1"),
        (np.full((2, 3), 0.1, "f4").T[:1], b"[[0.1,0.1]]"),
        (np.array([0.1 + 0.2j], "c8"), b"[[0.1,0.2]]"),
        (np.array([0.1], ">f4"), b"[0.1]"),
        (np.array([0.5], "f2"), b"[0.5]"),
        (np.array(7), b"7"),
        (np.array("text", object), b'"text"'),
    ],
)
def test_numbers_have_their_own_digits(array, value):
    assert body([{"y": array}], "json") == b'{"predictions":[{"value":' + value + b"}]}"


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [("[16777217, 1]", "i8"), ("[16777216, -1]", "f4"), ("[9223372036854775809]", "u8"), ("[16777217, 0.5]", "f4")],
)
def test_whole_numbers_of_an_input_of_unknown_dtype_are_not_changed(numbers, dtype):
    (record,) = instances.read(f'{{"instances": [{{"x": {numbers}}}]}}'.encode(), 1, None)
    array = decode(record.data)[1]["x"]
    assert array.dtype == dtype
    assert array.tolist() == np.array(json.loads(numbers), dtype).tolist()


def test_rows_of_several_inputs_need_names(ask, report):
    report(("x", "float32", (None, 1)), ("y", "float32", (None, 1)))
    answer = ask.post("/predict", json={"instances": [[1, 2]]})
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        'instances[0] is a list ([1, 2]); expected {"name": value, …}; the model expects x: float32[?, 1], '
        "y: float32[?, 1]",
    )


def test_our_form_of_the_original_client_is_answered(ask, monkeypatch):
    # A proxy of the environment does not lead to this machine itself.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    body = '{"instances": [{"x": [1, 2.5]}]}'
    base = str(ask.base_url)
    assert original.InputQueue(frontend_url=base).predict(body) == "data=[1.0,2.5],shape=[2];"
    response = ask.post("/bigdl/predict", content=body)
    assert original.http_response_to_ndarray(response).tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "empty"),
        (b"{", "not JSON.*line 1 column 2"),
        (b"1", "a value"),
        (b"{}", "no 'instances'"),
        (b'{"instances": 3}', "'instances'"),
        (b'{"instances": []}', "is empty"),
        (b'{"instances": [null]}', r"instances\[0\] is a value \(null\)"),
        (b'{"instances": [{"x": [1]}, {"x": [[1], [1, 2]]}]}', r"instances\[1\]\.x is not a tensor"),
        (b'{"instances": [{"x": [1]}, {"x": null}]}', r"instances\[1\]\.x"),
        (
            b'{"instances": [{"x": "no image"}]}',
            r"instances\[0\]\.x is 'no image'; expected a number; the model expects x",
        ),
        (b'{"instances": [{"x": ' + b"[" * 900 + b"]" * 900 + b"}]}", "nested|empty list"),
        # The id of a test is in its environment, whose size limits that of a process.
        pytest.param(b'{"instances": [{"x": ' + b"[" * 90_000 + b"]" * 90_000 + b"}]}", "not JSON", id="deep"),
        (b"\xff\xfe", "not JSON: the text is UTF-16; expected a text in UTF-8"),
        ('{"instances": ["é"]}'.encode("latin1"), r"not JSON: byte 16 \(0xe9\) is not UTF-8; expected a text in UTF-8"),
    ],
)
def test_a_mistake_is_400_and_its_place(ask, body, message):
    response = ask.post("/predict", content=body)
    assert response.status_code == 400
    assert response.json()["code"] == "INVALID_INPUT"
    assert re.search(message, response.json()["error"]), response.json()


def test_one_bad_instance_leaves_the_others_their_answers(ask):
    response = ask.post("/predict", json={"instances": [{"x": [1]}, {"x": "no image"}, {"x": [3]}]})
    assert response.status_code == 400
    first, bad, last = response.json()["predictions"]
    assert (first, last) == ({"value": [1.0]}, {"value": [3.0]})
    assert bad == {"error": response.json()["error"], "code": "INVALID_INPUT"}
    assert "instances[1].x" in bad["error"]
    alone = ask.post("/predict", json={"instances": [{}]}).json()
    assert alone.keys() == {"error", "code"} and alone["error"].startswith("instances[0] is empty ({}); expected")
    assert ask.post("/zoo-0.9/predict", json={"instances": [{"x": None}]}).json()["predictions"] == ["{value=NaN}"]


def test_models_are_listed_and_asked_by_name_and_version(ask, job):
    body = {"instances": [{"x": [1]}]}
    (model,) = [model for model in ask.get("/models").json() if model["modelName"] == job]
    assert (model["modelVersion"], model["state"], model["slots"]) == ("1", "ready", {"ready": 1})
    assert model["inputs"] == [{"name": "x", "dtype": "float32", "shape": [None, None]}]
    assert ask.get(f"/models/{job}").json() == [model]
    assert ask.get(f"/models/{job}/versions/1").json() == model
    for path in (f"/models/{job}/predict", f"/models/{job}/versions/1/predict"):
        assert ask.post(path, json=body).json() == {"predictions": [{"value": [1.0]}]}
    for path, code in (("/models/other", "MODEL_NOT_FOUND"), (f"/models/{job}/versions/2", "VERSION_NOT_FOUND")):
        response = ask.get(path)
        assert (response.status_code, response.json()["code"]) == (404, code)
        assert job in response.json()["error"]
        assert ask.post(f"{path}/predict", json=body).status_code == 404


def test_the_secret_of_encrypted_models_reaches_redis_and_no_message(ask, report, db, job):
    db.delete(MODEL_SECRET_KEY)
    done = ask.post("/model-secure", content="secret=my%20secret&salt=s%26lt")
    assert done.status_code == 200
    assert done.text == "model secured secrect and salt succeed to put in redis"
    assert db.hgetall(MODEL_SECRET_KEY) == {b"secret": b"my secret", b"salt": b"s&lt"}
    # A job whose name has braces has a secret of its own; its models have none.
    host, model = JobKeys(f"{{{job}}}"), JobKeys(f"{{{job}}}-model")
    report(("x", "float32", (None,)), job=host.job)
    db.hset(host.models, model.job, SlotReport("", "ready").to_json())
    wait_until(lambda: ask.get(f"/models/{model.job}").status_code == 200)
    assert ask.post("/model-secure", content="secret=a&salt=b").status_code == 200
    assert db.hgetall(host.secret) == {b"secret": b"a", b"salt": b"b"}
    assert not db.exists(model.secret)
    db.delete(host.secret, host.models, model.secret)
    page = ask.post("/model-secure", content="secret=a&salt=b", headers={"Origin": "https://evil.example"})
    assert page.status_code == 403
    assert "another origin" in page.json()["error"]
    for form, status in (
        ("secret=hidden", 400),
        ("secret=hidden&salt=b" + "&a=b" * 16, 400),
        ("a=" + "b" * 65536, 413),
    ):
        wrong = ask.post("/model-secure", content=form)
        assert wrong.status_code == status
        assert "hidden" not in wrong.text
    db.delete(MODEL_SECRET_KEY)


def test_the_servers_own_page_may_send_a_secret_and_none_that_calls_itself_so(serve, db):
    url = serve().url
    port = int(url.rpartition(":")[2])
    own = [url, f"http://localhost:{port}", f"http://[::1]:{port}"]
    others = [f"http://evil.example:{port}", f"http://localhost:{port + 1}", "http://localhost", "http://[", "null", ""]
    for origin in (*own, *others):
        headers = {"Origin": origin, "Host": origin.removeprefix("http://") or "a"}
        done = httpx.post(f"{url}/model-secure", content="secret=a&salt=b", headers=headers)
        assert done.status_code == (200 if origin in own else 403), origin
    db.delete(MODEL_SECRET_KEY)


def test_secrets_are_not_taken_from_everybody(serve):
    port = serve("--interface=0.0.0.0").url.rpartition(":")[2]
    assert httpx.post(f"http://127.0.0.1:{port}/model-secure", content="secret=a&salt=b").status_code == 403


def test_no_answer_in_time_is_504_and_the_request_is_withdrawn(serve, report, db, job):
    report(("x", "float32", (None, None)))
    base = serve().url
    response = httpx.post(f"{base}/predict", json={"instances": [{"x": [1]}]}, headers={"x-timeout-ms": "300"})
    assert (response.status_code, response.json()["code"]) == (504, "RESULT_TIMEOUT")
    wrong = httpx.post(f"{base}/predict", json={"instances": [{"x": [1]}]}, headers={"x-timeout-ms": "soon"})
    assert wrong.status_code == 400
