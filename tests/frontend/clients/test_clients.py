"""Official clients, unmodified and in environments of their own, with the calls that their READMEs show."""

import shutil
import subprocess
import sys

import httpx
import pytest

from tests.support.worlds.clients import PINS, node, python_of
from tests.support.worlds.environments import ROOT

PROGRAMS = ROOT / "tests" / "support" / "programs" / "clients"
SECONDS = 120
TYPED = ("vector", "table", "parrot")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def run(*command, folder=None):
    """Run a program in a folder; return what it prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PINS)
def test_the_clients_are_installed(name):
    assert run(python_of(name), "-c", "print('ready')") == "ready\n"


@pytest.mark.parametrize(
    ("environment", "program"),
    [
        ("clients", "triton"),
        ("clients", "kserve_client"),
        ("mlserver", "mlserver_codecs"),
        ("clients", "openai_sdk"),
        ("clients", "langchain_chat"),
        ("clients", "litellm_calls"),
    ],
)
def test_a_client_is_answered(models, environment, program):
    printed = run(python_of(environment), PROGRAMS / f"{program}.py", models.url, models.grpc)
    assert printed.endswith("all answered\n")


def test_a_typed_client_of_the_documents_calls_every_model(models, tmp_path):
    printed = run(python_of("clients"), PROGRAMS / "typed.py", models.url, tmp_path)
    assert printed.endswith("all answered\n")


def test_types_of_typescript_from_the_documents_fit_every_model(models, tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("there is no Node")
    (tmp_path / "node_modules").symlink_to(node() / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    documents = {"server": "/openapi.json", **{name: f"/models/{name}/openapi.json" for name in TYPED}}
    for name, path in documents.items():
        run("npx", "openapi-typescript", models.url + path, "-o", f"{name}.d.ts", folder=tmp_path)
    shutil.copy(PROGRAMS / "typed.mts", tmp_path)
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck"]
    run("npx", "tsc", *options, "typed.mts", folder=tmp_path)
    assert run("node", "typed.mjs", models.url, folder=tmp_path) == "all answered\n"


@pytest.mark.timeout(600)
def test_made_up_requests_are_answered_as_the_document_says(models, tmp_path):
    for path in ("/openapi.json", "/models/vector/openapi.json", "/models/parrot/openapi.json"):
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{models.url}{path}", "--checks", CHECKS]
        command += ["--seed", "1", "--max-time", str(SECONDS // 3), "--no-color", "--header", "X-Timeout-Ms: 20000"]
        run(*command, "--exclude-path-regex", "/(load|unload)$", folder=tmp_path)
    assert httpx.get(f"{models.url}/health/ready").json() == {"ready": True}
