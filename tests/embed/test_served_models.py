"""Running jobs as models of SQL, by the providers of Flink."""

import json
import os
from pathlib import Path

import pytest

from cluster_serving.frontend import arguments
from tests.support import flink_programs
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.handled import write

EXAMPLE = Path(__file__).parents[2] / "examples" / "flink" / "served.py"
JAR = os.environ.get("FLINK_MODEL_OPENAI_JAR", "")

WORDS = """
    import numpy as np

    class Handler:
        inputs = {"text": "str"}
        outputs = {"embedding": "float32[2]", "text": "str"}

        def predict(self, batch):
            sizes = [[len(text), len(text.split())] for text in batch["text"]]
            return {"embedding": np.array(sizes, "f4"), "text": [text.upper() for text in batch["text"]]}
    """


@pytest.fixture
def served(started, cluster, tmp_path):
    """A job with a model of texts, and the address of a front end."""
    (tmp_path / "model").mkdir()
    write(tmp_path / "model", WORDS)
    started(jobName="sentences", modelPath=tmp_path / "model")
    front = Running(arguments.read([f"--redisPort={cluster.redis_port}", "--port=0", "--grpcPort=0"], {}))
    yield front.url
    front.stop()


@pytest.mark.skipif(not JAR, reason="FLINK_MODEL_OPENAI_JAR names no flink-model-openai-2.3.0.jar")
def test_a_query_asks_a_running_job_for_vectors_and_answers(served, cluster, tmp_path):
    lines = [{"id": number, "line": " ".join(["word"] * number)} for number in range(1, 21)]
    (tmp_path / "lines.json").write_text("\n".join(map(json.dumps, lines)) + "\n")
    arguments_ = (JAR, served, "sentences", tmp_path / "lines.json", tmp_path / "found")
    flink_programs.run(cluster, EXAMPLE, *arguments_, cwd=tmp_path)
    files = [file for file in (tmp_path / "found").rglob("*") if file.is_file()]
    found = {row["id"]: row for file in files for row in map(json.loads, file.read_text().splitlines())}
    assert found == {
        number: {"id": number, "vector": [5.0 * number - 1, number], "answer": " ".join(["WORD"] * number)}
        for number in range(1, 21)
    }
