"""Metrics of a job: Prometheus, the command and Flink count what clients sent, whichever way it came."""

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster_serving.client import InferenceFailed, InvalidInput
from tests.support.fixtures.handled import write
from tests.support.fixtures.waiting import wait_until

HANDLER = """
    class Handler:
        inputs = {"x": "float32"}
        outputs = {"y": "float32"}

        def load(self, context):
            self.metrics = context.metrics

        def predict(self, batch):
            self.metrics.observe("batch", len(batch["x"]))
            return [{"y": x} if x >= 0 else ValueError(f"{x:g} is negative") for x in batch["x"]]

        def postprocess(self, result):
            self.metrics.count("answered")
            return result
    """


class Samples:
    """The samples of a job in a text for Prometheus."""

    def __init__(self, text, job):
        families = text_string_to_metric_families(text)
        self._samples = [
            each for family in families for each in family.samples if each.labels.get("serving_job") == job
        ]

    def sum(self, name, **labels):
        """The sum of all samples of this name and these labels."""
        return sum(
            each.value
            for each in self._samples
            if each.name == f"cluster_serving_{name}" and labels.items() <= each.labels.items()
        )

    def values(self, name, label):
        return {each.labels[label] for each in self._samples if each.name == f"cluster_serving_{name}"}

    @property
    def counts(self):
        """All but what depends on the moment."""
        return {
            (each.name, *sorted(each.labels.items())): each.value
            for each in self._samples
            if not any(word in each.name for word in ("memory", "_cpu_", "disk", "round_trip"))
            and not each.name.endswith(("_length", "waiting_seconds", "ready"))
        }


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_answered_and_failed_records_add_up_to_those_that_were_sent(started, cluster, front, tmp_path, mode):
    write(tmp_path, HANDLER)
    job = f"counted-{mode}"
    queue, _ = started(jobName=job, modelPath=tmp_path, maxBatchSize=8, executionMode=mode, modelParallelism=2)

    def read():
        return Samples(front.get("/metrics", headers={"accept": "text/plain"}).text, job)

    # By HTTP, in entries of several records, and by Redis, one by one and in pieces of many.
    front.post(f"/models/{job}/predict", json={"instances": [{"x": x} for x in [1, 2, -3, 4, 5]]})
    queue.predict({"x": 1}, timeout=60)
    with pytest.raises(InferenceFailed):
        queue.predict({"x": -1}, timeout=60)
    list(queue.predict_many([{"x": x} for x in range(100)], timeout=60))
    with pytest.raises(InvalidInput):
        queue.predict({"x": [[1, 2], [3, 4]]}, timeout=60)

    sent, failed = 5 + 2 + 100 + 1, {"INFERENCE_FAILED": 2, "INVALID_INPUT": 1}
    wait_until(lambda: read().sum("records_answered_total") + read().sum("records_failed_total") == sent)
    found = read()
    for code, count in failed.items():
        assert found.sum("records_failed_total", code=code) == count
    assert found.sum("records_in_total") == sent
    # Of each record and each batch there is one time.
    for name in ("request_seconds", "queue_wait_seconds"):
        assert found.sum(f"{name}_count") == found.sum("batch_size_sum") == sent
    for name in ("preprocess", "inference", "postprocess", "batch_compute", "write"):
        assert found.sum(f"{name}_seconds_count") == found.sum("batch_size_count")
    assert found.sum("batches_closed_total") > 0 and found.sum("gathering_seconds_count") > 0
    # Records of a batch that fails are computed again.
    assert found.sum("handler_answered_total") >= sent - sum(failed.values())
    assert found.sum("handler_batch_sum") >= sent - 1
    # Slots of both processes.
    assert found.values("records_in_total", "slot") <= {"0", "1"}
    assert found.values("process_memory_bytes", "slot") == {"0", "1"}
    assert found.sum("cpu_seconds_total") > 0
    assert found.sum("model_load_seconds") > 0 and found.sum("process_memory_bytes") > 1 << 20
    assert found.sum("slots", state="ready") == 2

    # The command prints the same, once the slots have written who sent the requests, which they do apart.
    wait_until(lambda: read().sum("client_requests_total") == found.sum("requests_in_total"))
    printed = cluster.run("cluster-serving-cli", "metrics", cwd=cluster.folder / job)
    assert Samples(printed.stdout, job).counts == read().counts
    # Flink counts requests, of which some have several records.
    requests = found.sum("requests_in_total")
    assert requests < sent
    wait_until(lambda: flink_counts(cluster, job) == (requests, sum(failed.values())), 60)


def flink_counts(cluster, job):
    """The sums over all slots of Flink's `requests` and `failures` behind the window."""
    base = f"{cluster.rest}/jobs/{cluster.job(job)['jid']}"
    totals = {"requests": 0, "failures": 0}
    last = httpx.get(base).json()["vertices"][-1]
    for index in range(last["parallelism"]):
        url = f"{base}/vertices/{last['id']}/subtasks/{index}/metrics"
        for name in [each["id"] for each in httpx.get(url).json()]:
            counter = name.rpartition(".")[2]
            if counter in totals:
                totals[counter] += int(httpx.get(url, params={"get": name}).json()[0]["value"])
    return totals["requests"], totals["failures"]


def test_series_keep_their_names_and_counts_when_a_job_is_started_again(started, cluster, tmp_path):
    (tmp_path / "7").mkdir()
    write(tmp_path / "7", HANDLER)
    queue, _ = started(jobName="again", modelPath=tmp_path)

    def read():
        return Samples(cluster.run("cluster-serving-cli", "metrics", cwd=cluster.folder / "again").stdout, "again")

    for expected in (1, 2):
        queue.predict({"x": 1}, timeout=60)
        wait_until(lambda: read().sum("records_answered_total", version="7") == expected)  # noqa: B023
        if expected == 1:
            before = read().counts.keys()
            assert cluster.run("cluster-serving-restart", "--in-place", cwd=cluster.folder / "again").returncode == 0
    assert before <= read().counts.keys()
