"""Seldon Core: a file with a `SeldonDeployment` of Core 1, or with `Model` objects of Core 2."""

from pathlib import Path
from typing import Any

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import manifests, storage
from cluster_serving.launcher.origins.fields import Fields
from cluster_serving.launcher.origins.manifests import PAYLOADS, POD, REPLICAS
from cluster_serving.launcher.origins.taken import Taken

EXPECTED = "a SeldonDeployment or Model of Seldon Core as YAML"

KINDS = {"SeldonDeployment": "machinelearning.seldon.io/", "Model": "mlops.seldon.io/"}
_SERVERS = {"SKLEARN": "sklearn", "XGBOOST": "xgboost", "TENSORFLOW": "tensorflow", "TRITON": "triton"}
_SERVERS |= {"MLFLOW": "mlflow", "HUGGINGFACE": "huggingface"}
"""Start of an implementation `*_SERVER` → format of its models."""

_NAME = "clients name the job, jobName"
_HANDLER = "move its code into a handler (cluster-serving-init --handler)"
_SECRETS = "docs/how-to/model-stores.md says where a job looks for credentials"
_SSL = "the section http has the certificate of the front end (docs/how-to/security.md)"
_VARIABLES = dict.fromkeys(("GUNICORN_WORKERS", "GUNICORN_THREADS"), REPLICAS)
"""Variable of a container → what to do instead."""

_SHARE = "a canary or a shadow is started with cluster-serving-cli update (docs/how-to/changes.md)"
_FILTERS = "postProcessing makes classes of logits (docs/reference/values.md)"
_PARAMETERS = {
    "signature_name": "inputs and outputs name the tensors of another signature than serving_default",
    "model_name": _NAME,
    "model_input": "inputs names the tensors that clients send",
    "model_output": "outputs names the tensors of an answer",
    "task": _FILTERS,
    "pretrained_tokenizer": "its tokenizer.json lies beside the model (docs/how-to/texts-and-tables.md)",
    "xtype": "columns of a table are sent by their names",
    "pretrained_model": "export it with optimum-cli, and take that folder over (docs/how-to/convert-models.md)",
}
_SELDON = "Seldon's own protocol (/api/v1.0/predictions) is not answered: clients send v1 or v2"


def read(path: Path, read_folder: storage.Reader) -> Taken | None:
    """Return the models of a file or folder; None if no object there is one of Seldon's."""
    return manifests.models(path, " or ".join(KINDS), _is_model, lambda each: _read(each, read_folder))


def _is_model(each: Fields) -> bool:
    return str(each.take("apiVersion")).startswith(KINDS.get(str(each.take("kind")), "-"))


def _read(each: Fields, read_folder: storage.Reader) -> Taken:
    name = manifests.described(each)
    taken = Taken(f"the {name}")
    taken.name(str(each.part("metadata").take("name") or "model"))
    spec = each.part("spec")
    if each.take("kind") == "Model":
        _take_model(taken, spec, read_folder)
    else:
        _take_deployment(taken, spec, each.part("metadata"), read_folder)
    taken.left += manifests.metadata_left(each)
    taken.left += each.left(f"the {name}")
    return taken


def _take_model(taken: Taken, spec: Fields, read_folder: storage.Reader) -> None:
    kinds = [str(kind) for kind in (*spec.every("requirements"), *spec.every("modelType"))]
    address = str(spec.take("storageUri") or spec.take("uri") or "")
    if "llm" in spec or "explainer" in spec:
        raise LaunchError(
            f"{taken.origin} is {'an explainer' if 'explainer' in spec else 'a language model'}: {_HANDLER}"
        )
    if spec.take("replicas", 1) != 1:
        taken.left.append(f"replicas {spec.take('replicas')} of spec: {REPLICAS}")
    taken.left += spec.leave("spec", REPLICAS, "minReplicas", "maxReplicas", "scalingSpec")
    taken.left += spec.leave("spec", PAYLOADS, "logger")
    taken.left += spec.leave("spec", "results are in Redis until resultTtl is over; no topics are made", "dataflow")
    version = spec.take("artifactVersion")
    taken.left += spec.leave("spec", _SECRETS, "secretName", "storageSecretName")
    for part in spec.parts("parameters"):
        taken.left.append(f"the parameter {part.take('name')} ({part.take('value')}) of spec: docs/reference/config.md")
    taken.left += spec.left("spec", "a job is its own server: docs/how-to/deploy/kubernetes.md")
    storage.take(taken, address, kinds or ["mlserver"], read_folder)
    if version is not None:
        _take_version(taken, version)


def _take_version(taken: Taken, version: Any) -> None:
    """Take the number of the subfolder that is served, if the model has one of that number here."""
    if any(name.startswith(f"{version}/") for name in taken.files):
        taken.keys["modelVersion"] = version
    else:
        taken.left.append(f"artifactVersion {version} of spec: modelPath names the folder of a version: add its number")


def _take_deployment(taken: Taken, spec: Fields, metadata: Fields, read_folder: storage.Reader) -> None:
    predictors = spec.parts("predictors")
    if not predictors:
        raise LaunchError(f"{taken.origin} has no predictors")
    first = max(predictors, key=_share)
    for predictor in predictors:
        if predictor is not first:
            place = predictor.part("graph").take("modelUri", "a container")
            name = f"the predictor {predictor.take('name')} ({place}) beside {first.take('name')}"
            taken.left.append(f"{name}: {_SHARE}")
            predictor.left("")
    _take_graph(taken, first.part("graph"), read_folder)
    if (replicas := first.take("replicas", spec.take("replicas", 1))) != 1:
        taken.left.append(f"replicas {replicas}: {REPLICAS}")
    first.take("name"), first.take("traffic"), first.take("shadow")
    where = f"the predictor {first.take('name')}"
    taken.left += first.leave(where, manifests.EXPLAINER, "explainer")
    for part in first.parts("componentSpecs"):
        _take_component(taken, part, f"componentSpecs of {where}")
    taken.left += first.leave(where, _SSL, "ssl")
    _take_annotations(taken, metadata, spec, first)
    taken.left += first.left(where, POD)
    if str(protocol := spec.take("protocol") or spec.take("transport") or "seldon") == "seldon":
        taken.left.append(f"protocol {protocol}: {_SELDON}")
    taken.left += spec.leave("spec", _NAME, "name")
    taken.left += spec.left("spec", POD)


def _take_component(taken: Taken, component: Fields, where: str) -> None:
    """Take the GPU of the containers beside a model."""
    if component.take("replicas", 1) != 1:
        taken.left.append(f"replicas {component.take('replicas')} of {where}: {REPLICAS}")
    taken.left += component.leave(where, REPLICAS, "hpaSpec", "kedaSpec")
    pod = component.part("spec")
    for container in pod.parts("containers"):
        limits = container.part("resources").part("limits")
        if str(limits.take("nvidia.com/gpu") or 0) not in ("0", ""):
            taken.keys["device"] = "cuda"
        container.take("name")
        for variable in container.parts("env"):
            # Its value may be a secret.
            variable.take("value"), variable.take("valueFrom")
            name = str(variable.take("name"))
            taken.left.append(f"the variable {name} of {where}: {_VARIABLES.get(name, POD)}")
        taken.left += container.leave(where, "a job computes with an engine of its own", "image", "imagePullPolicy")
    taken.left += component.left(where, POD)


def _take_annotations(taken: Taken, *parts: Fields) -> None:
    """Take the time limit of a request, which an object, its specification or a predictor may have."""
    for part in parts:
        found = part.part("annotations")
        for name in ("seldon.io/rest-timeout", "seldon.io/grpc-timeout"):
            value = str(found.take(name, ""))
            if value.isdecimal() and int(value):
                taken.keys["requestDeadline"] = max(int(value), taken.keys.get("requestDeadline", 0))


def _share(predictor: Fields) -> float:
    """Return the share of the requests that a predictor answers; less than nothing for a shadow."""
    share = predictor.take("traffic", 0)
    return -1.0 if predictor.take("shadow") else float(share) if isinstance(share, int | float) else 0.0


def _take_graph(taken: Taken, graph: Fields, read_folder: storage.Reader) -> None:
    kind, server = str(graph.take("type") or "MODEL"), str(graph.take("implementation") or "")
    children = graph.every("children")
    if children or kind != "MODEL":
        what = f"a graph of {len(children) + 1} nodes" if children else f"a {kind}"
        raise LaunchError(f"{taken.origin} is {what}: call its models from a handler (docs/how-to/handlers.md)")
    if not server.endswith("_SERVER"):
        raise LaunchError(f"{taken.origin} runs a container of its own: {_HANDLER}")
    name = server.removesuffix("_SERVER")
    address = str(graph.take("modelUri") or "")
    for part in graph.parts("parameters"):
        key, value = part.take("name"), part.take("value")
        part.take("type")
        if key == "method" and value == "predict_proba":
            taken.keys["outputs"] = "probabilities"
        elif key == "method" and value == "predict":
            taken.left.append("the parameter method (predict) of the graph: set outputs: label for a classifier")
        else:
            way = _PARAMETERS.get(str(key), "docs/reference/config.md has the keys of a job")
            taken.left.append(f"the parameter {key} ({value}) of the graph: {way}")
    where = "spec.predictors.graph"
    taken.left += graph.leave(where, _NAME, "name", "endpoint")
    taken.left += graph.leave(where, PAYLOADS, "logger")
    taken.left += graph.leave(where, _SECRETS, "envSecretRefName", "serviceAccountName")
    taken.left += graph.left(where, POD)
    storage.take(taken, address, [_SERVERS.get(name, name)], read_folder)
