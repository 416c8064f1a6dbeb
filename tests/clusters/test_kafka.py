"""A job between two topics of a real Kafka."""

import json
import os
import uuid
from pathlib import Path

import httpx
import pytest

from tests.support import flink_programs
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

EXAMPLE = Path(__file__).parents[2] / "examples" / "flink" / "kafka_to_kafka.py"
FILES = Path(__file__).with_name("programs") / "kafka_files.py"
BROKER, JAR = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", ""), os.environ.get("FLINK_KAFKA_JAR", "")

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not BROKER, reason="KAFKA_BOOTSTRAP_SERVERS names no broker, such as 127.0.0.1:9092"),
    pytest.mark.skipif(not JAR, reason="FLINK_KAFKA_JAR names no flink-sql-connector-kafka-*.jar"),
]


def jobs(cluster):
    return httpx.get(f"{cluster.rest}/jobs").json()["jobs"]


def cancel_all(cluster):
    for job in jobs(cluster):
        httpx.patch(f"{cluster.rest}/jobs/{job['id']}", params={"mode": "cancel"})


def rows(folder):
    """JSON of the complete files in a folder by `id`."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return {row["id"]: row for row in map(json.loads, lines)}


def test_the_example_answers_each_record_of_a_topic(own_cluster, tmp_path):
    model, product = tmp_path / "model", tmp_path / "product"
    model_zoo.save_onnx_digits(model)
    product.mkdir()
    model_zoo.save_openvino_product(product, 2)
    # The first job starts Flink.
    done = own_cluster.start(jobName="first", modelPath=product)
    assert done.returncode == 0, done.stdout + done.stderr
    x = model_zoo.digits_data()[0][:40]
    lines = [{"id": number, "pixels": pixels.tolist()[: 63 if number == 7 else 64]} for number, pixels in enumerate(x)]
    (tmp_path / "digits.json").write_text("\n".join(map(json.dumps, lines)) + "\n")
    topics = [f"{name}-{uuid.uuid4().hex}" for name in ("asked", "answered")]
    answers = tmp_path / "answers"
    arguments = (JAR, BROKER, tmp_path / "digits.json", *topics, answers)
    with flink_programs.submit(own_cluster, FILES, *arguments, cwd=tmp_path) as files:
        wait_until(lambda: len(jobs(own_cluster)) == 2 or files.poll(), 60)
        with flink_programs.submit(own_cluster, EXAMPLE, JAR, BROKER, model, *topics, cwd=tmp_path) as example:
            try:
                wait_until(lambda: len(rows(answers)) == 40 or example.poll() or files.poll(), 120)
            finally:
                cancel_all(own_cluster)
            said = [process.communicate(timeout=60)[0] for process in (example, files)]
    found = rows(answers)
    assert len(found) == 40, "\n".join(said)
    assert found.pop(7)["error"].startswith("INVALID_INPUT: input 'x' has shape [63]")
    expected = model_zoo.digits_mlp(x).argmax(1).tolist()
    assert {number: row["digit"] for number, row in found.items()} == {
        number: digit for number, digit in enumerate(expected) if number != 7
    }
