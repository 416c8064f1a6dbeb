"""Models by the names and versions of the original's servables-conf.yaml."""

import httpx
import pytest

from cluster_serving.frontend import arguments
from cluster_serving.frontend.errors import StartError
from cluster_serving.frontend.models.servables import read_servables
from tests.support.fixtures.front_end import Running

ENTRY = """\
 - !<ClusterServingMetaData>
   modelName: "{name}"
   modelVersion: "{version}"
   redisHost: "127.0.0.1"
   redisPort: "{port}"
   redisInputQueue: "{job}"
   redisOutputQueue: "cluster-serving_{job}:"
   timeWindow: 0
   inputCompileType: "instance"
   features:
    - "x"
"""


def write(folder, *entries):
    file = folder / "servables-conf.yaml"
    file.write_text("---\nmodelMetaDataList:\n" + "".join(entries))
    return file


@pytest.mark.usefixtures("echo")
def test_models_are_served_by_the_names_and_versions_of_the_file(redis_server, report, job, tmp_path):
    report(("x", "float32", (None, None)))
    entries = [
        ENTRY.format(name="second", version=version, port=redis_server.port, job=job) for version in ("1.0", "2.0")
    ]
    file = write(tmp_path, *entries)
    running = Running(arguments.read([f"--servableManagerConfPath={file}", "--port=0", "--grpcPort=0"], {}))
    try:
        models = httpx.get(f"{running.url}/models").json()
        assert [(m["modelName"], m["modelVersion"], m["redisInputQueue"]) for m in models] == [
            ("second", "1.0", job),
            ("second", "2.0", job),
        ]
        body = {"instances": [{"x": [1, 2]}]}
        for path in ("models/second/versions/1.0/predict", "models/second/predict", "predict"):
            response = httpx.post(f"{running.url}/{path}", json=body, timeout=30)
            assert response.json() == {"predictions": [{"value": [1, 2]}]}
        assert httpx.get(f"{running.url}/models/{job}").status_code == 404
        assert httpx.get(f"{running.url}/health/ready", timeout=30).json() == {"ready": True}
    finally:
        running.stop()


@pytest.mark.usefixtures("echo")
def test_two_versions_of_a_model_are_told_apart_by_readiness_and_metrics(redis_server, report, job, db, tmp_path):
    report(("x", "float32", (None, None)))
    entries = [
        ENTRY.format(name="model", version=version, port=redis_server.port, job=name)
        for version, name in (("1", f"{job}-missing"), ("2", job))
    ]
    running = Running(
        arguments.read([f"--servableManagerConfPath={write(tmp_path, *entries)}", "--port=0", "--grpcPort=0"], {})
    )
    db.xadd(f"{job}-missing", {"uri": "waits"})
    try:
        # The last version alone would be ready.
        assert "no slot has loaded it" in httpx.get(f"{running.url}/health/ready", timeout=30).json()["error"]
        assert httpx.get(f"{running.url}/v2/models/model/versions/2/ready", timeout=30).json()["ready"] is True
        text = httpx.get(f"{running.url}/metrics", headers={"accept": "text/plain"}, timeout=30).text
        for name, length in ((f"{job}-missing", 1), (job, 0)):
            assert f'cluster_serving_queue_length{{serving_job="{name}"}} {length}\n' in text
        assert f'cluster_serving_ready{{model="model",serving_job="{job}",version="2"}} 1.0' in text
    finally:
        running.stop()
        db.delete(f"{job}-missing")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no list modelMetaDataList"),
        ("modelMetaDataList: [", "not valid YAML"),
        ("modelMetaDataList: [{a: 1}]", "no modelName"),
        (
            "modelMetaDataList:\n - !<InferenceModelMetaData>\n   modelName: m\n   modelPath: /m",
            "line 2: model m is to",
        ),
        ("modelMetaDataList:\n" + 2 * ENTRY.format(name="m", version=1, port=1, job="j"), "same version twice"),
        (
            "modelMetaDataList:\n"
            + ENTRY.format(name="m", version=1, port=1, job="j")
            + ENTRY.format(name="m", version=2, port=2, job="j"),
            "different Redis",
        ),
    ],
)
def test_a_file_that_no_jobs_can_serve_is_refused(tmp_path, text, message):
    file = tmp_path / "servables-conf.yaml"
    file.write_text(text)
    with pytest.raises(StartError, match=message):
        read_servables(file)
    with pytest.raises(StartError, match="cannot be read"):
        read_servables(tmp_path / "none.yaml")
