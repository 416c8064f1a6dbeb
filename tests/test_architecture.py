"""The rules of docs/architecture.md that a machine can check."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# What each package may import of ours; of `job`, `frontend` and `bench` the launcher may use the entry point
# (and the options) alone.
ALLOWED = {
    "client": {"client"},
    "connectors": {"client", "connectors"},
    "job": {"client", "connectors", "job"},
    "launcher": {"client", "launcher", "flink_conf", "job.main", "job.options", "frontend.main", "bench.load.main"},
    "frontend": {"client", "frontend"},
    "bench": {"client", "bench"},
}

# Heavy packages, and the only packages of ours that may import them.
HEAVY = {
    "pyflink": {"connectors", "job"},
    "tensorflow": {"job", "bench"},
    "torch": {"job"},
    "openvino": {"job", "bench"},
    "onnxruntime": {"job"},
    "keras": {"job", "bench"},
    "cv2": {"job", "bench"},
    "pydantic": {"launcher", "frontend"},
    "typer": {"launcher", "frontend", "bench"},
    "httpx": {"launcher", "frontend", "bench"},
    "starlette": {"frontend"},
    "uvicorn": {"frontend"},
    "orjson": {"frontend"},
    "grpc": {"frontend"},
    "prometheus_client": {"frontend"},
}

# The peers of the benchmark run in environments of their own; what protoc generates is as long as it is.
PEERS = ROOT / "bench" / "peers"
FILES = sorted(
    path
    for package in ALLOWED
    for path in (ROOT / package).rglob("*.py")
    if not path.is_relative_to(PEERS) and not path.name.endswith("_pb2.py")
)


def imports(path):
    """Absolute names of all modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_table(path):
    package = path.relative_to(ROOT).parts[0]
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "cluster_serving":
            allowed = any(rest == prefix or rest.startswith(prefix + ".") for prefix in ALLOWED[package])
            assert allowed, f"{package} may not import {name}"
        if top in HEAVY:
            assert package in HEAVY[top], f"{package} may not import {top}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_small(path):
    assert len(path.read_text("utf8").splitlines()) <= 300


def test_every_package_is_declared():
    folders = {str(path.parent.relative_to(ROOT)) for path in FILES}
    declared = (ROOT / "pyproject.toml").read_text("utf8")
    assert all(f'= "{folder}"' in declared for folder in folders)
