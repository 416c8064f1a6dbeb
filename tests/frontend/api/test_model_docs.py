"""The OpenAPI document of a model is valid, and its examples are answered as it says."""

import base64
import json
import re

import cv2
import httpx
import jsonschema
import numpy as np
import pytest
import schemathesis

from cluster_serving.protocol.results import encode_ranked, encode_result
from tests.support.fixtures.echo import answering, echoed
from tests.support.fixtures.generating import EMBEDDER, PARROT, generating

CHAT = """
    import json

    class Handler:
        inputs = {"messages": "str", "max_tokens": "int64", "temperature": "float32"}
        outputs = {"text": "str", "finish_reason": "str", "tool_calls": "str", "thought": "str"}

        def predict(self, batch):
            (last,) = [json.loads(messages)[-1] for messages in batch["messages"]]
            others = {"finish_reason": "stop", "tool_calls": "", "thought": "none"}
            yield [{"text": f"{last['role']}: {last['content']}", **others}]
    """

MODELS = {
    "one vector": [("x", "float32", (None, 3))],
    "several inputs": [
        ("x", "float64", (None, 2, 2)),
        ("count", "int8", (None,)),
        ("flag", "bool", (None, 2)),
        ("text", "str", (None, 1)),
    ],
    "free sizes": [("ids", "int32", (None, None)), ("mask", "int64", (None, None))],
    "no dtype": [("x", "", (None, 2))],
    "a name that looks like a reference": [('x", "$ref": "#/components/schemas/None', "float32", (None, 1))],
}


@pytest.fixture
def documented(serve, job):
    """Returns the document of the model of a front end, once it is found valid, and a client of that front end."""
    clients = []

    def documented(*options, path=f"/models/{job}/openapi.json"):
        clients.append(httpx.Client(base_url=serve(f"--models={job}", *options).url, timeout=30))
        answer = clients[-1].get(path)
        assert answer.status_code == 200, answer.text
        schemathesis.openapi.from_dict(answer.json()).validate()
        return answer.json(), clients[-1]

    yield documented
    for client in clients:
        client.close()


def bodies(document):
    """The schema and the example of the body of each path."""
    for path, methods in document["paths"].items():
        body = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        schema = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
        yield path, {**body, "components": document["components"]}, schema.get("example")


def check_examples(document, client, others=()):
    """Send each example; its body, and the answer to it, are as the document says."""
    checked = schemathesis.openapi.from_dict(document)
    answers = {}
    for path, schema, example in bodies(document):
        jsonschema.Draft202012Validator(schema).validate(example)
        answer = client.post(path, json=example)
        assert answer.status_code == 200, (path, answer.text)
        checked[path]["POST"].validate_response(answer)
        answers[document["paths"][path]["post"]["operationId"]] = answer.json()
    assert answers.keys() == {"predict", "predictV1", "inferV2", *others}
    return answers


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_its_examples_are_answered_as_it_says(report, documented, kind, batched):
    report(*MODELS[kind], already_batched=batched)
    document, client = documented()
    answers = check_examples(document, client)
    assert [output["name"] for output in answers["inferV2"]["outputs"]] == [name for name, *_ in MODELS[kind]]


@pytest.mark.usefixtures("echo")
def test_it_has_names_dtypes_and_shapes_of_inputs_and_outputs(report, documented):
    report(*MODELS["several inputs"])
    schemas = documented()[0]["components"]["schemas"]
    inputs = schemas["Instances"]["properties"]["instances"]["items"]["properties"]
    assert {name: schema["description"] for name, schema in inputs.items()} == {
        "x": "float64[2, 2]",
        "count": "int8[]",
        "flag": "bool[2]",
        "text": "str[1]",
    }
    whole = {"type": "integer", "format": "int8", "minimum": -128, "maximum": 127}
    assert inputs["count"] == {"oneOf": [whole, {"type": "boolean"}], "description": "int8[]"}
    assert schemas["Instances"]["example"] == {
        "instances": [{"x": [[0.5, 0.5], [0.5, 0.5]], "count": 0, "flag": [False, False], "text": ["text"]}]
    }
    tensors = schemas["V2InferRequest"]["properties"]["inputs"]["items"]["oneOf"]
    assert [tensor["properties"]["datatype"] for tensor in tensors] == [
        {"type": "string", "const": "FP64"},
        {"type": "string", "const": "INT8"},
        {"type": "string", "const": "BOOL"},
        {"type": "string", "const": "BYTES"},
    ]


@pytest.mark.usefixtures("echo")
def test_generators_of_clients_get_choices_of_types_and_one_form_of_all_outputs(report, documented):
    report(("age", "float32", (None,)), ("count", "int64", (None, 2)), ("town", "str", (None, 1)))
    document, _ = documented()
    assert not re.findall(r'"anyOf"|"type": \["\w+", "(?!null)', json.dumps(document))
    tensor = document["components"]["schemas"]["V2InferResponse"]["properties"]["outputs"]["items"]
    kinds = {name: tensor["properties"][name] for name in ("name", "datatype")}
    assert kinds == {
        "name": {"type": "string", "enum": ["age", "count", "town"]},
        "datatype": {"type": "string", "enum": ["BYTES", "FP32", "INT64"]},
    }


@pytest.mark.parametrize(
    ("code", "others", "told"),
    [
        (PARROT, {"chat", "completions"}, "text "),
        (CHAT, {"chat"}, "user: text"),
        (EMBEDDER, {"embeddings"}, [4.0, 1.3333334, 0.0]),
    ],
)
def test_a_model_of_texts_has_the_paths_of_openai_that_it_answers(
    redis_server, job, documented, tmp_path, code, others, told
):
    with generating(redis_server.port, job, tmp_path, code):
        document, client = documented()
        answers = check_examples(document, client, others)
    for operation in others:
        (choice,) = answers[operation].get("choices") or answers[operation]["data"]
        if operation == "embeddings":
            assert choice["embedding"] == told
            continue
        assert (choice["text"] if operation == "completions" else choice["message"]["content"]) == told


@pytest.mark.usefixtures("echo")
def test_a_missing_value_and_a_truth_value_fit_a_number(report, documented):
    report(("age", "float32", (None,)), ("count", "int64", (None,)), ("town", "str", (None,)))
    document, client = documented()
    for path, schema, _ in bodies(document):
        values = {"age": None, "count": True, "town": "Ulm"}
        tensors = [("age", "FP32", [None]), ("count", "INT64", [True]), ("town", "BYTES", ["Ulm"])]
        fields = ("name", "datatype", "data", "shape")
        sent = (
            {"instances": [values]}
            if "v2" not in path
            else {"inputs": [dict(zip(fields, (*tensor, [1]), strict=True)) for tensor in tensors]}
        )
        jsonschema.Draft202012Validator(schema).validate(sent)
        answer = client.post(path, json=sent)
        assert answer.status_code == 200, answer.text


def test_what_the_model_does_not_take_does_not_fit(report, documented):
    report(("x", "uint8", (None, 2)))
    document, _ = documented()
    schema = next(schema for path, schema, _ in bodies(document) if path.endswith("/predict"))
    fits = jsonschema.Draft202012Validator(schema).is_valid
    assert fits({"instances": [{"x": [0, 255]}]})
    for wrong in ({"x": [0]}, {"x": [0, 256]}, {"x": [0, "1"]}, {"y": [0, 1]}, {"x": [0, 1], "y": 0}):
        assert not fits({"instances": [wrong]}), wrong


@pytest.mark.parametrize(
    ("shape", "size"), [((None, None, None, 3), (64, 64)), ((None, 3, 20, 30), (20, 30)), ((None, 1, 60, 60), (60, 60))]
)
def test_the_example_of_an_image_is_an_image_file(report, documented, db, job, shape, size):
    report(("photo", "uint8", shape), outputs=())
    seen = []

    def seeing(entry):
        (image,) = entry.decode()[1].values()
        seen.append(cv2.imdecode(np.frombuffer(image.data, "u1"), cv2.IMREAD_COLOR).shape[:2])
        return encode_result(True, ["y"], [np.zeros(2, "f4")])

    document, client = documented()
    with answering(db, job, seeing):
        check_examples(document, client)
    assert seen == [size] * 3


def test_the_example_of_a_small_image_is_numbers(report, documented, db, job):
    report(("photo", "float32", (None, 3, 8, 8)))
    document, client = documented()
    with answering(db, job, echoed):
        check_examples(document, client)
    schema = next(schema for path, schema, _ in bodies(document) if path.endswith("/predict"))
    file = base64.b64encode(b"a file").decode()
    assert jsonschema.Draft202012Validator(schema).is_valid({"instances": [{"photo": {"b64": file}}]})


def test_an_example_that_would_be_too_long_is_left_out(report, documented):
    report(("x", "float32", (None, 20_000)))
    assert [example for _, _, example in bodies(documented()[0])] == [None] * 3


@pytest.mark.parametrize("names", [["y"], ["y", "z"]])
def test_rankings_are_described(report, documented, db, job, names):
    specs = [(name, "float32", (None, 10)) for name in names]
    report(*specs, post_processing="softmax | topN(2)")
    fields = encode_ranked(True, names, [[(3, 0.75), (1, 0.25)]] * len(names))
    document, client = documented()
    with answering(db, job, lambda entry: fields):
        answers = check_examples(document, client)
    ranking = [{"class": 3, "prob": 0.75}, {"class": 1, "prob": 0.25}]
    assert answers["predictV1"] == {"predictions": [ranking if len(names) == 1 else [ranking, ranking]]}
    assert answers["inferV2"]["outputs"][0]["data"] == ["0.75:3", "0.25:1"]


def test_numbers_that_json_lacks_are_described(report, documented, db, job):
    report(("x", "float32", (None, 2)))
    document, client = documented()
    with answering(db, job, lambda entry: encode_result(True, ["x"], [np.array([np.nan, np.inf], "f4")])):
        assert check_examples(document, client)["predictV1"] == {"predictions": [[None, None]]}


@pytest.mark.usefixtures("echo")
def test_predictions_in_a_form_of_the_original_are_texts(report, documented):
    report(*MODELS["one vector"])
    document, client = documented("--responseFormat=zoo-0.9")
    (prediction,) = check_examples(document, client)["predict"]["predictions"]
    assert prediction == "{value=data=[0.5,0.5,0.5],shape=[3];}"


@pytest.mark.usefixtures("echo")
def test_the_document_of_a_version_has_the_paths_of_that_version(report, documented, job):
    report(*MODELS["one vector"], version="7", numbered=True)
    document, client = documented(path=f"/models/{job}/versions/7/openapi.json")
    assert document["info"]["version"] == "7"
    assert [*document["paths"]] == [
        f"/models/{job}/versions/7/predict",
        f"/v1/models/{job}/versions/7:predict",
        f"/v2/models/{job}/versions/7/infer",
    ]
    check_examples(document, client)
    missing = client.get(f"/models/{job}/versions/8/openapi.json")
    assert (missing.status_code, missing.json()["code"]) == (404, "VERSION_NOT_FOUND")


def test_a_model_that_was_never_loaded_has_the_schemas_of_any(report, documented):
    report(state="loading", engine="")
    document, _ = documented()
    assert "not known" in document["info"]["description"]
    assert [example for _, _, example in bodies(document)] == [None] * 3


def test_a_model_that_does_not_exist_has_none(serve):
    answer = httpx.get(f"{serve().url}/models/nothing/openapi.json")
    assert (answer.status_code, answer.json()["code"]) == (404, "MODEL_NOT_FOUND")


def test_the_document_of_a_model_needs_an_api_key_where_predictions_do(report, serve, job, keys):
    file, key = keys
    report(*MODELS["one vector"])
    url = f"{serve(f'--models={job}', f'--apiKeysFile={file}').url}/models/{job}/openapi.json"
    assert httpx.get(url).status_code == 401
    document = httpx.get(url, headers={"x-api-key": key}).json()
    assert document["security"] == [{"bearer": []}, {"key": []}]
    schemathesis.openapi.from_dict(document).validate()
