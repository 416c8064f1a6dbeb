"""Metrics of a job: definitions, and their text for Prometheus."""

from prometheus_client.parser import text_string_to_metric_families

from cluster_serving.protocol.figures import metrics
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.exposition import Reading, exposition
from cluster_serving.protocol.figures.metrics import HISTOGRAM, METRICS, of_handler
from cluster_serving.protocol.figures.stats import LAST_ANSWER, JobStats
from cluster_serving.protocol.slots import SlotReport


def reading(slots, job="one", reports=()):
    return Reading(job, slots, {metrics.QUEUE.name: 3, metrics.OLDEST.name: 1_500_000, "dead_letters": 0}, reports)


def parsed(*readings):
    return {family.name: family for family in text_string_to_metric_families(exposition(readings))}


def test_names_follow_the_rules_of_prometheus():
    for metric in METRICS:
        assert metric.full_name.endswith("_total") == (metric.kind == "counter")
        assert metric.unit != "seconds" or "seconds" in metric.name
        assert metric.unit != "bytes" or "bytes" in metric.name
        # Prometheus has a label `job` of its own.
        assert "job" not in metric.labels


def test_a_histogram_has_the_form_that_prometheus_reads():
    counts = Counts()
    counts.observe((metrics.WRITE, 1500, 1), (metrics.WRITE, 2000, 2), (metrics.WRITE, 10**9, 1))
    family = parsed(reading({("7", "0"): counts.take()}))["cluster_serving_write_seconds"]
    buckets = {each.labels["le"]: each.value for each in family.samples if each.name.endswith("_bucket")}
    assert (buckets["0.001"], buckets["0.002"], buckets["65.536"], buckets["+Inf"]) == (0, 3, 3, 4)
    rest = {each.name.rpartition("_")[2]: each for each in family.samples if not each.name.endswith("_bucket")}
    assert rest["count"].value == 4 and rest["sum"].value == 1000.0055
    assert rest["sum"].labels == {"serving_job": "one", "version": "7", "slot": "0"}


def test_counters_have_their_labels_and_jobs_share_a_family():
    values = {"records_answered": 5, "records_failed:INVALID_INPUT": 2, "record_compute_seconds": 2_500_000}
    found = parsed(reading({("1", "0"): values}), reading({("1", "0"): values}, job='t"wo'))
    assert [each.labels["serving_job"] for each in found["cluster_serving_records_answered"].samples] == ["one", 't"wo']
    failed = {each.labels["code"]: each.value for each in found["cluster_serving_records_failed"].samples}
    assert failed["INVALID_INPUT"] == 2
    assert found["cluster_serving_record_compute_seconds"].samples[0].value == 2.5
    assert found["cluster_serving_oldest_waiting_seconds"].samples[0].value == 1.5


def test_counters_of_a_slot_begin_at_0_and_so_do_the_usual_codes():
    found = parsed(reading({("1", "0"): {"alive": 1}}))
    unlabelled = [metric for metric in METRICS if metric.kind == "counter" and not metric.label]
    assert {"requests_given_up", "reconnects"} <= {metric.name for metric in unlabelled}
    for metric in unlabelled:
        assert [each.value for each in found[metric.full_name.removesuffix("_total")].samples] == [0]
    codes = {each.labels["code"]: each.value for each in found["cluster_serving_records_failed"].samples}
    assert codes == dict.fromkeys(metrics.FAILED.begins, 0) and "INFERENCE_FAILED" in codes
    assert "cluster_serving_client_requests" not in found


def test_the_totals_of_a_version_are_those_of_its_slots_together():
    values = {"records_answered": 5, "records_failed:INVALID_INPUT": 2, "request_seconds:0.001": 7}
    more = {"records_answered": 1, "records_failed:MODEL_ERROR": 1}
    totals = reading({("1", "0"): values, ("1", "1"): values, ("2", "0"): more}).totals()
    assert (totals["1"].requests, totals["1"].codes) == (14, {"INVALID_INPUT": 4})
    assert totals["1"].latency(0.99) == 1
    assert (totals["2"].requests, totals["2"].failures) == (2, 1)


def test_metrics_of_a_handler_are_served_with_the_others():
    counts = Counts()
    counts.add(of_handler("counter", "cache_hits"), 3_000_000)
    counts.observe((of_handler(HISTOGRAM, "score"), 500_000, 1))
    found = parsed(reading({("1", "0"): counts.take()}))
    assert found["cluster_serving_handler_cache_hits"].samples[0].value == 3
    buckets = {each.labels.get("le"): each.value for each in found["cluster_serving_handler_score"].samples}
    assert (buckets["0.256"], buckets["0.512"], buckets[None]) == (0, 1, 1)


def test_slots_of_a_canary_with_the_same_version_make_no_second_series():
    reports = [SlotReport("a", "ready", version="1", restarts=count) for count in (1, 2)]
    found = parsed(reading({}, reports=reports))
    assert [each.value for each in found["cluster_serving_slot_restarts"].samples] == [3]
    ready = [each for each in found["cluster_serving_slots"].samples if each.labels["state"] == "ready"]
    assert [each.value for each in ready] == [2]


def test_the_difference_of_two_readings_is_what_came_between():
    before = {f"{metrics.FAILED.name}:A": "1", metrics.ANSWERED.name: "2", metrics.BATCH_SIZE.fields[0]: "3"}
    after = {f"{metrics.FAILED.name}:A": "1", f"{metrics.FAILED.name}:B": "4", metrics.ANSWERED.name: "7"}
    after |= {metrics.BATCH_SIZE.fields[0]: "5", LAST_ANSWER: "90"}
    between = JobStats.read(after) - JobStats.read(before)
    assert (between.requests, between.failures, between.codes) == (9, 4, {"A": 0, "B": 4})
    assert (between.batches, between.batch_sizes[:2], between.answered_ms) == (2, (2, 0), 90)
