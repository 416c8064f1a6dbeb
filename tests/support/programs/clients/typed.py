"""Generate typed clients from the OpenAPI documents with openapi-python-client, and call every model with them."""

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import typing
from pathlib import Path

import httpx

url, folder = sys.argv[1:]
GENERATE = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning"]
sys.path.insert(0, folder)


def generate(path, name):
    """Generate the client of a document; return the document, and the package."""
    document = httpx.get(url + path).json()
    source = Path(folder, f"{name}.json")
    source.write_text(json.dumps(document))
    Path(folder, "settings.yml").write_text("post_hooks: []\n")
    command = [
        *GENERATE,
        "--path",
        source,
        "--output-path",
        Path(folder, name),
        "--config",
        Path(folder, "settings.yml"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return document, importlib.import_module(name)


def calls(package):
    """Yield the module of each operation."""
    api = importlib.import_module(f"{package.__name__}.api")
    for tag in pkgutil.iter_modules(api.__path__):
        inner = importlib.import_module(f"{api.__name__}.{tag.name}")
        for operation in pkgutil.iter_modules(inner.__path__):
            yield importlib.import_module(f"{inner.__name__}.{operation.name}")


def body_of(module, schemas):
    """Return the example of the body of an operation, as an object of the client."""
    annotation = typing.get_type_hints(module.sync_detailed)["body"]
    for kind in typing.get_args(annotation) or (annotation,):
        if "example" in schemas.get(getattr(kind, "__name__", ""), {}):
            return kind.from_dict(schemas[kind.__name__]["example"])
    raise AssertionError(f"no example of the body of {module.__name__}")


names = httpx.get(f"{url}/v1/models").json()["models"]
for name in names:
    document, package = generate(f"/models/{name}/openapi.json", f"client_of_{name}")
    client = package.Client(base_url=url, timeout=30)
    operations = [*calls(package)]
    assert len(operations) == len(document["paths"])
    for module in operations:
        answer = module.sync_detailed(client=client, body=body_of(module, document["components"]["schemas"]))
        assert answer.status_code == 200, (module.__name__, answer.content)
        assert answer.parsed is not None
assert {"chat", "completions"} <= {
    module.__name__.rpartition(".")[2] for module in calls(sys.modules["client_of_parrot"])
}

_, package = generate("/openapi.json", "client_of_all")
client = package.Client(base_url=url, timeout=30)
for module in calls(package):
    parameters = inspect.signature(module.sync_detailed).parameters
    needed = [name for name, each in parameters.items() if each.default is inspect.Parameter.empty and name != "client"]
    if ".get_" in module.__name__ and needed in ([], ["name"]):
        answer = module.sync_detailed(**dict.fromkeys(needed, names[0]), client=client)
        assert answer.status_code == 200, (module.__name__, answer.content)
print("all answered")
