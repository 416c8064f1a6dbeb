import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from cluster_serving.bench import report
from cluster_serving.bench.guard import problems
from cluster_serving.bench.load import html, output, svg
from cluster_serving.bench.load.processes import Snapshot
from cluster_serving.bench.load.result import Result, cost
from cluster_serving.bench.load.stats import Latency

RESULT = Result(
    mode="closed", client="sync", concurrency=8, generators=1, offered=101.0, sent_rate=101.0, achieved=100.0,
    seconds=3.0, stable=True, windows=[99.0, 100.0, 101.0], latency_ms=Latency.of(np.array([0.01, 0.02])),
    histogram={"borders_ms": [1.0, 10.0, 100.0], "counts": [3, 4]}, sent=303, answered=300, errors={"QUEUE_FULL": 3},
    lost=0, repeated=0, checked=300, wrong=0, can_check=True,
    cpu_seconds_per_1000={"Redis": 0.1, "load generator": 0.2},
    cpu_share={"Redis": 0.01, "load generator": 0.02}, generator_cpu_seconds=0.1, peak_memory_mb={"Redis": 5.0},
    job={
        "batches": 2,
        "batchSize": 3.0,
        "queueWaitMs": 1.0,
        "inferenceMs": 2.0,
        "writeMs": 0.5,
        "batchSizes": {"2": 1, "4": 1},
    },
)  # fmt: skip


def test_the_page_holds_everything_itself():
    page = html.page([RESULT, replace(RESULT, concurrency=16)], {"job": "<script>alert(1)</script>"})
    assert "<script" not in page
    for outside in ("src=", "href=", "@import", "url("):
        assert outside not in page
    assert "QUEUE_FULL" not in page or "errors" in page
    assert page.count("<svg") >= 6


def test_charts_are_well_formed_and_show_every_point():
    chart = ElementTree.fromstring(svg.lines("A < B", {"a&b": [(1, 2), (10, 20)], "c": [(1, 0)]}, "x", "y", "xy"))  # noqa: S314
    assert len([node for node in chart.iter() if node.tag.endswith("circle")]) == 2
    ElementTree.fromstring(svg.bars("none", {}, "s"))  # noqa: S314
    ElementTree.fromstring(svg.lines("none", {}, "x", "y"))  # noqa: S314
    ElementTree.fromstring(svg.lines("one", {"a": [(5, 5)]}, "x", "y"))  # noqa: S314
    ElementTree.fromstring(svg.histogram("one", [1.0, 2.0], [4], "ms"))  # noqa: S314


def test_json_has_no_nan():
    nothing = replace(RESULT, latency_ms=Latency.of(np.empty(0)))
    document = json.loads(output.to_json([nothing], {"job": "j"}))
    assert document["results"][0]["latency_ms"]["p50"] is None
    assert document["machine"]["cores"] >= 1


def test_cost_is_the_difference_of_snapshots():
    before, after = (
        Snapshot(0, {"a": 1.0, "gone": 0}, {"a": 5, "gone": 0}),
        Snapshot(2, {"a": 3.0, "gone": 0}, {"a": 5, "gone": 0}),
    )
    assert cost(before, after, 500) == ({"a": 4.0}, {"a": 1.0})
    assert cost(before, after, 0)[0] == {}


def run_of(rate, **more):
    raw = RESULT.to_dict()
    return {"rate": rate, **raw, **more}


def results(**rows):
    machine = {"cores": 2, "cpu": "C", "memory_gb": 4, "system": "S", "python": "3.11", "packages": {"a": "1"}}
    return {"machine": machine, "settings": {"rounds": 1}, "rows": rows}


def test_the_document_gets_tables_and_pictures_between_its_markers(tmp_path):
    document = tmp_path / "b.md"
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    ratio = {"median": 1.5, "low": 1.4, "high": 1.6, "rounds": 1}
    other = {"runs": [{"rate": 66.0, "cpu": 1.0}], "ratio": ratio}
    images = {"ours": [run_of(100.0)], "others": {"bare loop": other, "x": {"failed": "no | pipe"}}, "layouts": {}}
    points = [{"slots": n, "taskmanagers": 1, "result": run_of(20.0 * n), "of_linear": 1.0} for n in (1, 2)]
    curve = [{"x": 10, "result": run_of(5.0)}]
    written = results(
        images=images,
        scaling={"points": points},
        costs={"requests": curve, "bytes": curve, "clients": curve},
        start={"times": [{"command_s": 9.0, "first_answer_s": 9.5}]},
        vector_latency={"ours": [run_of(700.0)]},
        vector_http={"failed": "Unavailable: nothing"},
    )
    pictures = report.write(written, document)
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "1.50 (1.40 to 1.60)" in text
    assert "Not measured: Unavailable: nothing" in text
    assert "no / pipe" in text
    assert {picture.stem for picture in pictures} >= {"images", "scaling", "costs-bytes"}
    assert all(f"images/{picture.name}" in text for picture in pictures)
    once = text
    report.write(written, document)
    assert document.read_text() == once


def test_a_document_without_markers_is_refused(tmp_path):
    document = tmp_path / "b.md"
    document.write_text("text")
    with pytest.raises(ValueError, match="results: begin"):
        report.write(results(), document)


def test_the_guard_fails_on_lost_requests_and_on_nothing_measured_only():
    fine = {"ours": [run_of(1.0)], "others": {"bare": {"runs": [{"rate": 99.0}]}}}
    assert problems(fine) == []
    assert "lost" in problems(fine | {"ours": [run_of(1.0, lost=2)]})[0]
    assert "nothing" in problems(fine | {"others": {"bare": {"failed": "why"}}})[0]
