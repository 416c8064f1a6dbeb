"""KServe: a file with one `InferenceService` or several."""

from pathlib import Path

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import manifests, storage
from cluster_serving.launcher.origins.fields import FACT, Fields
from cluster_serving.launcher.origins.manifests import PAYLOADS, POD, REPLICAS
from cluster_serving.launcher.origins.taken import Taken

EXPECTED = "an InferenceService of KServe as YAML"

KINDS = ("InferenceService", "TrainedModel")
_GROUP = "serving.kserve.io/"
_FORMATS = (
    "sklearn",
    "xgboost",
    "lightgbm",
    "onnx",
    "tensorflow",
    "pytorch",
    "triton",
    "huggingface",
    "pmml",
    "paddle",
)
"""Fields of a predictor in older manifests, each a format of models."""

_SCALING = ("minReplicas", "maxReplicas", "scaleTarget", "scaleMetric", "scaleMetricType", "containerConcurrency")
_CHANGES = "a canary is started with cluster-serving-cli update (docs/how-to/changes.md)"
_PROTOCOLS = ("v1", "v2", "grpc-v1", "grpc-v2", "open-inference-protocol")


def read(path: Path, read_folder: storage.Reader) -> Taken | None:
    """Return the models of a file or folder; None if no object there is of a kind with a model."""
    return manifests.models(path, " or ".join(KINDS), _is_service, lambda each: _read(each, read_folder))


def _is_service(each: Fields) -> bool:
    return each.take("kind") in KINDS and str(each.take("apiVersion")).startswith(_GROUP)


def _read(each: Fields, read_folder: storage.Reader) -> Taken:
    name = manifests.described(each)
    taken = Taken(f"the {name}")
    taken.name(str(each.part("metadata").take("name") or "model"))
    spec = each.part("spec")
    if each.take("kind") == KINDS[1]:
        _take_trained(taken, spec, read_folder)
        return _with_rest(taken, each, name)
    taken.left += spec.leave("spec", _CHANGES, "canary", "canaryTrafficPercent")
    # Until v1alpha2, the service had a default and a canary.
    service = spec.part("default") if "default" in spec else spec
    _take_service(taken, service, read_folder)
    return _with_rest(taken, each, name)


def _take_service(taken: Taken, service: Fields, read_folder: storage.Reader) -> None:
    predictor = service.part("predictor")
    _take_model(taken, predictor, read_folder)
    _take_batcher(taken, predictor.part("batcher"))
    seconds = predictor.take("timeout")
    if isinstance(seconds, int) and seconds > 0:
        taken.keys["requestDeadline"] = seconds * 1000
    where = "spec.predictor"
    taken.left += predictor.leave(where, REPLICAS, *_SCALING)
    taken.left += predictor.leave(where, PAYLOADS, "logger")
    taken.left += predictor.leave(where, _CHANGES, "canaryTrafficPercent", "canary")
    taken.left += predictor.left(where, POD)
    why = "move its code into model/handler.py (cluster-serving-init --handler)"
    taken.left += service.leave("spec", why, "transformer")
    taken.left += service.leave("spec", manifests.EXPLAINER, "explainer")


def _take_trained(taken: Taken, spec: Fields, read_folder: storage.Reader) -> None:
    """Take a model that several share a service with."""
    model, where = spec.part("model"), "spec.model"
    address, kind = str(model.take("storageUri") or ""), str(model.take("framework") or "")
    taken.left += spec.leave("spec", "a job is a server of its own", "inferenceService")
    taken.left += model.left(where, POD)
    storage.take(taken, address, [kind] if kind else [], read_folder)


def _with_rest(taken: Taken, each: Fields, name: str) -> Taken:
    taken.left += manifests.metadata_left(each)
    taken.left += each.left(f"the {name}")
    return taken


def _take_model(taken: Taken, predictor: Fields, read_folder: storage.Reader) -> None:
    older = next((kind for kind in _FORMATS if kind in predictor), "")
    if "model" not in predictor and not older:
        raise LaunchError(
            f"{taken.origin} runs a container of its own: move its code into a handler (cluster-serving-init --handler)"
        )
    model = predictor.part("model" if "model" in predictor else older)
    where = f"spec.predictor.{older or 'model'}"
    kind = model.part("modelFormat")
    kinds = [str(kind.take("name") or older)]
    taken.left += kind.leave(f"{where}.modelFormat", FACT, "version")
    if str(model.take("protocolVersion", "v1")) not in _PROTOCOLS:
        taken.left.append(f"protocolVersion of {where}: the front end answers v1 and v2 (docs/reference/kserve.md)")
    taken.left += model.leave(where, "the files of the model choose the engine", "runtime", "runtimeVersion")
    address = _address(taken, model, where)
    if str(model.part("resources").part("limits").take("nvidia.com/gpu") or 0) not in ("0", ""):
        taken.keys["device"] = "cuda"
    for part in model.parts("env"):
        # Its value may be a secret.
        part.take("value"), part.take("valueFrom")
        taken.left.append(f"the variable {part.take('name')} of {where}: {POD}")
    arguments = [str(argument) for argument in (*model.every("command"), *model.every("args"))]
    if arguments:
        taken.left.append(f"the arguments of the runtime, {' '.join(arguments)}: {_ARGUMENTS}")
    taken.left += model.left(where, POD)
    storage.take(taken, address, kinds, read_folder)


_ARGUMENTS = "docs/reference/config.md has the keys of a job, such as jobName, maxBatchSize and device"


def _address(taken: Taken, model: Fields, where: str) -> str:
    address = str(model.take("storageUri") or "")
    listed = model.parts("storageUris")
    if listed and not address:
        address = str(listed[0].take("uri") or "")
        listed[0].take("mountPath")
        for part in listed[1:]:
            place = part.take("mountPath")
            taken.left.append(
                f"the files at {part.take('uri')} for {place}: modelPath is one address; copy them into that folder"
            )
    stored = model.part("storage")
    if "storage" not in model or address:
        return address
    bucket, path = stored.part("parameters").take("bucket"), stored.take("path")
    kind = stored.part("parameters").take("type", "s3")
    taken.left += stored.leave(f"{where}.storage", "docs/how-to/model-stores.md says where credentials are", "key")
    if bucket and path:
        return f"{kind}://{bucket}/{str(path).lstrip('/')}"
    taken.left.append(
        f"the path {path} of {where}.storage, whose bucket is in a secret: set modelPath: s3://BUCKET/{path}"
    )
    return ""


def _take_batcher(taken: Taken, batcher: Fields) -> None:
    for name, key in (("maxBatchSize", "maxBatchSize"), ("maxLatency", "batchTimeout")):
        value = batcher.take(name)
        if isinstance(value, int) and value > 0:
            taken.keys[key] = value
    taken.left += batcher.leave(
        "spec.predictor.batcher", "requestDeadline limits the whole time of a request", "timeout"
    )
