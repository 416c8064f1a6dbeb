"""The OpenAPI document is true: requests that fit it, and requests that do not, are answered as it says."""

import json
import re
import subprocess
import sys
from itertools import chain
from typing import get_args

import httpx
import jsonschema
import numpy as np
import pytest

from cluster_serving.frontend.api import docs, page, v1
from cluster_serving.frontend.api.v2.body import HEADER_LENGTH
from cluster_serving.frontend.api.v2.datatypes import INPUTS
from cluster_serving.frontend.api.v2.http import UNSUPPORTED
from cluster_serving.frontend.apis import Apis
from cluster_serving.frontend.errors import (
    ERRORS,
    ExpectationFailed,
    HttpVersionNotSupported,
    MethodNotAllowed,
    NotSupported,
)
from cluster_serving.frontend.options import ResponseFormat
from cluster_serving.protocol.keys import PRIORITIES
from cluster_serving.protocol.results import encode_result
from tests.support.fixtures.echo import answering

TRUTHS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method"
)


@pytest.fixture
def zeros(db, job):
    """A consumer that answers every request with the same vector."""
    fields = encode_result(True, ["y"], [np.zeros(3, "f4")])
    with answering(db, job, lambda entry: fields):
        yield


# Requests with random names would never reach the model.
CONFIG = """
[[operations]]
include-path-regex = "[/:](infer|predict)$"
parameters = {{ "path.name" = "{job}" }}
"""


@pytest.mark.usefixtures("zeros")
def test_nothing_is_answered_that_is_not_documented(serve, report, job, tmp_path):
    (tmp_path / "schemathesis.toml").write_text(CONFIG.format(job=job))
    report(("x", "float32", (None, 3)))
    # Jobs of other tests may not be ready.
    url = serve(f"--models={job}").url
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", TRUTHS]
    command += ["--max-examples", "5", "--phases", "examples,coverage,fuzzing", "--mode", "all", "--no-color"]
    # Another path does the same without a version.
    command += ["--exclude-path-regex", "/versions/"]
    # A random timeout of a millisecond would be answered with 504, as documented.
    command += ["--header", "X-Timeout-Ms: 20000"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = httpx.get(f"{url}/metrics", headers={"accept": "text/plain"}).text
    for protocol, status in (("original", 200), ("kserve_v1", 200), ("v2", 200), ("v2", 400)):
        assert f'model="{job}",protocol="{protocol}",status="{status}"' in counts


def test_every_path_is_documented(serve):
    front = serve().front
    routes = chain(*Apis(front).routes().values())
    served = {(route.path, method.lower()) for route in routes for method in route.methods - {"HEAD"}}
    paths = docs.document(keys=False)["paths"]
    described = {(path, method) for path, methods in paths.items() for method in methods}
    # Scripts and styles of the page are no API, nor is what is answered with "not supported".
    others = {(path, method) for path in {*page.PATHS, *UNSUPPORTED} - {"/ui", "/docs"} for method in ("get", "post")}
    others |= {(path, method.lower()) for path in v1.VERBS for method in v1.ANY_METHOD}
    assert served - others == described


def test_generators_of_clients_find_names_of_operations_fields_of_objects_and_elements_of_arrays():
    document = docs.document(keys=False)
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len({*names}) == len(names)
    assert "getV1FilesByIdContent" in names

    def check(schema, within):
        if isinstance(schema, dict):
            kinds = schema.get("type", "")
            assert "array" not in kinds or "items" in schema, schema
            # Without a type, clients in Ruby do not tell one constant from another one.
            assert kinds or not {"const", "enum"} & schema.keys(), schema
            fields = schema.get("required", ()) if kinds == "object" else ()
            assert {*fields} <= schema.get("properties", {}).keys(), schema
            name = schema.get("$ref", "").rpartition("/")[2]
            assert name not in within, f"{name} refers to itself"
            if "/schemas/" in schema.get("$ref", ""):
                check(document["components"]["schemas"][name], {*within, name})
        for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
            check(part, within)

    check(document["components"]["schemas"], set())


def test_numbers_have_64_bits_and_no_schema_is_a_list_of_types():
    """Generators of clients take 32 bits for numbers without a format, and make an empty type of a list of types."""
    text = json.dumps(docs.document(keys=False))
    assert not re.findall(r'"anyOf"|"type": \["\w+", "(?!null)', text)
    assert not re.findall(r'(?<!"format": "int64", )"type": \[?"integer"', text)
    assert not re.findall(r'(?<!"format": "double", )"type": \[?"number"', text)


def test_every_json_body_that_has_to_hold_something_has_an_example_that_fits():
    """The page fills its forms with them, and the form of a batch with choices: its file has to be sent before."""
    document = docs.document(keys=False)
    for operation in chain.from_iterable(item.values() for item in document["paths"].values()):
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body and "$ref" in body["schema"]:
            schema = document["components"]["schemas"][body["schema"]["$ref"].rpartition("/")[2]]
            validator = jsonschema.Draft202012Validator({**schema, "components": document["components"]})
            choices = {"input_file_id": "", "endpoint": "/v1/completions", "completion_window": "24h"}
            filled = choices if schema.get("required") == [*choices] else {}
            validator.validate(schema.get("example", filled))


@pytest.mark.parametrize("kind", ["parameters", "responses", "schemas"])
def test_every_component_is_referred_to_and_every_reference_has_one(kind):
    document = docs.document(keys=False)
    referred = set(re.findall(rf"#/components/{kind}/(\w+)", json.dumps(document)))
    assert referred == document["components"][kind].keys()


def test_the_errors_of_the_document_are_those_of_the_table():
    document = docs.document(keys=False)
    assert document["components"]["schemas"]["ErrorBody"]["properties"]["code"]["enum"] == sorted(ERRORS)
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    documented = {int(status) for operation in operations for status in operation["responses"] if status != "2XX"}
    # A method that a path does not have is in no document, nor is what is not supported, nor what no path can change.
    others = {MethodNotAllowed, NotSupported, ExpectationFailed, HttpVersionNotSupported}
    statuses = {error.http_status for error in ERRORS.values()} - {error.http_status for error in others}
    assert {status for status in documented if status >= 400} == statuses


def test_a_status_has_one_component_in_all_operations():
    document = docs.document(keys=False)
    components = {}
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                if "$ref" in response:
                    components.setdefault(status, set()).add(response["$ref"])
    assert [status for status, names in components.items() if len(names) > 1] == []


def test_the_choices_of_the_document_are_those_of_the_code():
    components = docs.document(keys=False)["components"]
    parameters, schemas = components["parameters"], components["schemas"]
    assert parameters["ResponseFormat"]["schema"]["enum"] == list(get_args(ResponseFormat))
    assert sorted(parameters["Priority"]["schema"]["enum"]) == sorted(PRIORITIES)
    assert parameters["JsonLength"]["name"] == HEADER_LENGTH
    tensor = schemas["V2InferRequest"]["properties"]["inputs"]["items"]
    assert tensor["properties"]["datatype"]["enum"] == list(INPUTS)


def test_the_page_needs_nothing_from_elsewhere(serve):
    url = serve().url
    page = httpx.get(f"{url}/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert httpx.get(f"{url}/openapi.json").json()["openapi"] == "3.1.0"


def test_keys_are_part_of_the_document_where_they_are_needed():
    assert docs.document(keys=False)["security"] == []
    assert docs.document(keys=True)["security"] == [{"bearer": []}, {"key": []}]


def test_the_page_has_a_section_for_each_operation():
    document = docs.document(keys=True)
    sections = {tag["name"] for tag in document["tags"]}
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert [operation["operationId"] for operation in operations if not sections.issuperset(operation["tags"])] == []
