"""Manifests of KServe and Seldon Core: each field is a key, or is named."""

import pytest

from cluster_serving.launcher import origins
from cluster_serving.launcher.errors import LaunchError
from tests.support.payloads import foreign

KSERVE = "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\n"
SELDON = "apiVersion: machinelearning.seldon.io/v1\nkind: SeldonDeployment\n"
MODEL = "apiVersion: mlops.seldon.io/v1alpha1\nkind: Model\n"


def read(folder, text):
    (folder / "m.yaml").write_text(text)
    taken = origins.read(folder / "m.yaml")
    return taken.keys, "\n".join(taken.left), taken


def test_a_service_of_kserve(tmp_path):
    keys, said, _ = read(
        tmp_path,
        KSERVE
        + """
metadata: {name: flowers, namespace: shop, annotations: {serving.kserve.io/deploymentMode: RawDeployment}}
spec:
  transformer: {containers: [{image: a}]}
  predictor:
    minReplicas: 1
    maxReplicas: 3
    canaryTrafficPercent: 20
    timeout: 60
    logger: {mode: all}
    batcher: {maxBatchSize: 32, maxLatency: 500, timeout: 9}
    nodeSelector: {disk: ssd}
    model:
      modelFormat: {name: tensorflow, version: "2"}
      runtime: kserve-tensorflow-serving
      protocolVersion: v1
      storageUri: s3://bucket/flowers
      args: [--rest_api_port=1]
      env: [{name: A, value: b}]
      resources: {limits: {nvidia.com/gpu: 1, memory: 2Gi}}
      novel: 1
---
apiVersion: v1
kind: Secret
metadata: {name: access}
""",
    )
    assert keys == {
        "jobName": "flowers",
        "modelPath": "s3://bucket/flowers",
        "device": "cuda",
        "maxBatchSize": 32,
        "batchTimeout": 500,
        "requestDeadline": 60_000,
    }
    for line in (
        "transformer of spec: move its code into model/handler.py",
        "minReplicas, maxReplicas of spec.predictor: copies are slots here",
        "canaryTrafficPercent of spec.predictor: a canary",
        "logger of spec.predictor: the section payloadLog",
        "timeout of spec.predictor.batcher",
        "nodeSelector of spec.predictor",
        "version of spec.predictor.model.modelFormat",
        "runtime of spec.predictor.model: the files of the model choose the engine",
        "the arguments of the runtime, --rest_api_port=1",
        "the variable A of ",
        "novel, resources.limits.memory of spec.predictor.model",
        "the files of the format tensorflow, which were not looked at: modelPath names one version",
        "namespace of metadata",
        "the annotation serving.kserve.io/deploymentMode: ",
        "Secret access: docs/how-to/model-stores.md",
    ):
        assert line in said


@pytest.mark.parametrize(
    ("model", "path", "left"),
    [
        ("sklearn: {storageUri: 'gs://b/m'}", "gs://b/m", "a job runs no pickle"),
        ("xgboost: {storageUri: 's3://b/m/model.bst'}", "s3://b/m", "model.bst: modelPath names its folder"),
        ("onnx: {storageUri: 'pvc://claim/m'}", None, "mount the volume, and set modelPath"),
        ("huggingface: {storageUri: 'hf://org/m'}", None, "copy the model into model/"),
        ("pmml: {storageUri: 's3://b/m'}", "s3://b/m", "the format pmml: no engine here loads it"),
        ("model: {modelFormat: {name: onnx}, storage: {path: m, parameters: {bucket: b}}}", "s3://b/m", ""),
        ("model: {modelFormat: {name: onnx}, storage: {key: k, path: m}}", None, "set modelPath: s3://BUCKET/m"),
        ("model: {modelFormat: {name: onnx}, storageUris: [{uri: 's3://b/m', mountPath: /m}]}", "s3://b/m", ""),
    ],
)
def test_addresses_of_kserve(tmp_path, model, path, left):
    keys, said, _ = read(tmp_path, f"{KSERVE}metadata: {{name: a}}\nspec: {{predictor: {{{model}}}}}\n")
    assert keys.get("modelPath") == path and left in said


def test_deployments_of_seldon(tmp_path):
    keys, said, _ = read(
        tmp_path,
        SELDON
        + """
metadata: {name: irises}
spec:
  name: x
  predictors:
  - {name: small, traffic: 25, graph: {implementation: SKLEARN_SERVER, modelUri: 'gs://b/small', name: c}}
  - name: main
    traffic: 75
    replicas: 2
    svcOrchSpec: {}
    graph:
      implementation: XGBOOST_SERVER
      modelUri: gs://b/main
      name: classifier
      envSecretRefName: access
      logger: {mode: all}
      parameters: [{name: method, type: STRING, value: predict_proba}, {name: other, value: "1"}]
""",
    )
    assert keys == {"jobName": "irises", "modelPath": "gs://b/main", "outputs": "probabilities"}
    for line in (
        "the predictor small (gs://b/small) beside main: a canary",
        "replicas 2: copies are slots",
        "svcOrchSpec of the predictor main",
        "envSecretRefName of spec.predictors.graph: docs/how-to/model-stores.md",
        "logger of spec.predictors.graph",
        "the parameter other (1) of the graph",
        "protocol seldon: Seldon's own protocol",
    ):
        assert line in said


def test_models_of_seldon_with_files_on_this_machine_become_a_folder_of_models(tmp_path):
    foreign.mlflow(tmp_path / "a", "flavors: {lightgbm: {data: model.lgb}}")
    (tmp_path / "a" / "model.lgb").write_text("tree")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "model.bst").write_text("tree")
    documents = [
        MODEL + f"metadata: {{name: {name}}}\nspec: {{storageUri: '{tmp_path / name}', {rest}}}\n"
        for name, rest in {
            "a": "requirements: [mlflow], memory: 1Gi",
            "b": "requirements: [lightgbm], replicas: 2, artifactVersion: 3",
            "c": "requirements: [onnx]",
        }.items()
    ]
    keys, said, taken = read(tmp_path, "---\n".join([*documents, "apiVersion: mlops.seldon.io/v1\nkind: Pipeline\n"]))
    assert keys == {"jobName": "m"} and sorted(taken.files) == ["a/model.txt", "b/model.txt"]
    for line in (
        "a: memory of spec",
        "b: replicas 2 of spec",
        "b: artifactVersion 3 of spec: modelPath names the folder of a version",
        "the model Model c: ",
        "Pipeline without a name: call its models from a handler",
    ):
        assert line in said


def test_gpus_time_limits_and_scaling_of_a_deployment(tmp_path):
    keys, said, _ = read(
        tmp_path,
        SELDON
        + """
metadata: {name: a, annotations: {seldon.io/rest-timeout: "5000", other: x}}
spec:
  protocol: v2
  predictors:
  - componentSpecs:
    - hpaSpec: {maxReplicas: 3}
      pdbSpec: {minAvailable: 1}
      spec:
        containers:
        - name: c
          env: [{name: GUNICORN_WORKERS, value: "2"}]
          resources: {limits: {nvidia.com/gpu: 1, cpu: 2}}
    graph: {implementation: TRITON_SERVER, modelUri: 's3://b/m'}
""",
    )
    assert keys == {"jobName": "a", "modelPath": "s3://b/m", "device": "cuda", "requestDeadline": 5000}
    for line in (
        "hpaSpec of componentSpecs of the predictor None: copies are slots",
        "the variable GUNICORN_WORKERS of componentSpecs of the predictor None: copies are slots",
        "pdbSpec, spec.containers.resources.limits.cpu of componentSpecs of the predictor None: ",
        "the annotation other: ",
    ):
        assert line in said
    assert "rest-timeout" not in said


def test_a_folder_with_a_manifest_is_what_the_manifest_names_if_that_is_here(tmp_path):
    """One of the folders beside it would be a model of Triton by itself."""
    for place in ("a/1", "b"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "model.onnx").touch()
    (tmp_path / "notes").touch()
    specs = {"a": "modelType: onnx, artifactVersion: 1, dataflow: {cleanTopicsOnDelete: true}", "b": "server: s"}
    documents = [
        MODEL + f"metadata: {{name: {name}}}\nspec: {{storageUri: '{tmp_path / name}', {rest}}}\n"
        for name, rest in specs.items()
    ]
    (tmp_path / "m.yaml").write_text("---\n".join(documents))
    taken = origins.read(tmp_path)
    assert taken.own == {"a": {"modelVersion": 1}, "b": {}}
    assert [line for line in taken.left if "not read" in line] == [
        f"notes in {tmp_path}: not read; copy what a handler needs from there"
    ]
    # Files elsewhere are not preferred to those that are here, and a manifest that is refused keeps none back.
    for text in (MODEL + "metadata: {name: x}\nspec: {storageUri: 's3://b/m'}\n", MODEL + "spec: {llm: {}}\n"):
        (tmp_path / "m.yaml").write_text(text)
        assert [*origins.read(tmp_path).files] == ["1/model.onnx"]
    for name in ("a", "b"):
        (tmp_path / name).rename(tmp_path.parent / f"{tmp_path.name}-{name}")
    with pytest.raises(LaunchError, match="is a language model"):
        origins.read(tmp_path)


def test_services_of_one_name_in_two_namespaces_are_both_told_of(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model.txt").write_text("tree")
    model = f"{{modelFormat: {{name: lightgbm}}, storageUri: 'file://{tmp_path}/a'}}"
    spec = f"spec: {{predictor: {{model: {model}}}}}\n"
    documents = [KSERVE + f"metadata: {{name: a, namespace: {space}}}\n{spec}" for space in ("one", "two")]
    _, said, taken = read(tmp_path, "---\n".join(documents))
    assert [*taken.files] == ["a/model.txt"]
    assert "the model InferenceService a (number 2): a is the name of another model, too" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KSERVE + "metadata: {name: a}\nspec: {predictor: {containers: [{image: x}]}}", "a container of its own"),
        (KSERVE + "metadata: text\nspec: [1]", "InferenceService without a name runs a container of its own"),
        (KSERVE + "metadata: {", "m.yaml cannot be read"),
        (SELDON + "spec: {predictors: []}", "has no predictors"),
        (SELDON + "spec: {predictors: [{graph: {type: ROUTER}}]}", "is a ROUTER: call its models from a handler"),
        (SELDON + "spec: {predictors: [{graph: {children: [{}], implementation: X_SERVER}}]}", "a graph of 2 nodes"),
        (SELDON + "spec: {predictors: [{graph: {type: MODEL}}]}", "a container of its own"),
        (MODEL + "spec: {explainer: {type: x}}", "is an explainer"),
        (
            "apiVersion: mlops.seldon.io/v1alpha1\nkind: Pipeline\nmetadata: {name: p}\n---\n"
            "apiVersion: serving.kserve.io/v1alpha1\nkind: ServingRuntime\nmetadata: {name: r}\n",
            "m.yaml describes no model, as InferenceService or TrainedModel or SeldonDeployment or Model does; "
            "Pipeline p: call its models from a handler .*; ServingRuntime r: a job is server and runtime itself",
        ),
        ("apiVersion: v1\nkind: Pod\n", "is not the model of a server that is known here"),
    ],
)
def test_manifests_that_are_refused(tmp_path, text, message):
    with pytest.raises(LaunchError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("document", "keys", "left"),
    [
        (
            "apiVersion: serving.kserve.io/v1alpha2\nkind: InferenceService\nmetadata: {name: a}\n"
            "spec: {default: {predictor: {onnx: {storageUri: 's3://a/b'}}}, canaryTrafficPercent: 9, canary: {x: 1}}",
            {"modelPath": "s3://a/b"},
            "canary, canaryTrafficPercent of spec: a canary is started with cluster-serving-cli update",
        ),
        (
            "apiVersion: serving.kserve.io/v1alpha1\nkind: TrainedModel\nmetadata: {name: a}\n"
            "spec: {inferenceService: s, model: {storageUri: 's3://a/b', framework: onnx, memory: 1Gi}}",
            {"modelPath": "s3://a/b"},
            "inferenceService of spec: a job is a server of its own\nmemory of spec.model: ",
        ),
        (
            KSERVE + "metadata: {name: a}\nspec: {predictor: {model: {modelFormat: {name: onnx}, storageUris: "
            "[{uri: 's3://a/b', mountPath: /m}, {uri: 's3://c', mountPath: /n}]}}}",
            {"modelPath": "s3://a/b"},
            "the files at s3://c for /n: modelPath is one address",
        ),
        (
            KSERVE + "metadata: {name: a}\nspec: {predictor: {onnx: {storageUri: 'file:///no/such/place'}}}",
            {},
            "file:///no/such/place, which does not exist on this machine: copy the model into model/",
        ),
        (
            SELDON + "metadata: {name: a}\nspec: {predictors: [{explainer: {type: x}, componentSpecs: [{}], graph: "
            "{implementation: HUGGINGFACE_SERVER, parameters: [{name: pretrained_model, value: gpt2}]}}]}",
            {},
            "the parameter pretrained_model (gpt2) of the graph: export it with optimum-cli",
        ),
    ],
)
def test_older_kinds_and_further_fields_are_used_or_named(tmp_path, document, keys, left):
    found, said, _ = read(tmp_path, document)
    assert found == {"jobName": "a"} | keys and left in said and "no key" not in said
