import re
from pathlib import Path

import pytest

from cluster_serving.bench import report
from cluster_serving.bench.suite.rows import ROWS
from tests.support.payloads.bench_result import RESULT


def run_of(rate, **more):
    raw = RESULT.to_dict()
    return {"rate": rate, **raw, **more}


def results(**rows):
    machine = {"cores": 2, "cpu": "C", "memory_gb": 4, "system": "S", "python": "3.11", "packages": {"a": "1"}}
    return {"machine": machine, "settings": {"rounds": 1}, "rows": rows}


def test_the_document_gets_tables_between_its_markers(tmp_path):
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
    report.write(written, document)
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "1.50 (1.40 to 1.60)" in text
    assert "Not measured: Unavailable: nothing" in text
    assert "no / pipe" in text
    assert "| 2 | 1 | 40.0 | 1.000 |" in text
    once = text
    report.write(written, document)
    assert document.read_text() == once


def test_sections_that_were_not_measured_again_stay(tmp_path):
    document = tmp_path / "b.md"
    document.write_text(f"{report.BEGIN}\n{report.END}\n")
    report.write(results(vector_latency={"ours": [run_of(700.0)]}, start={"failed": "no"}), document)
    before = document.read_text()
    first = {"p50": 9.0, "p99": 20.0}
    counts = {"requests": 1000, "failed": 0, "wrong": 0}
    run = {**counts, "before_ms": first, "during_ms": first, "gap_ms": 123.0, "wait_ms": 321.0, "update_s": 4.56}
    update = {"ours": [run], "others": {"peer": {"runs": [run], "ratio": None}}}
    other_machine = results(update=update)
    other_machine["machine"]["cores"] = 64
    report.write(other_machine, document)
    added = "| **Cluster Serving** | 1,000 | 0, 0 | 9 | 20 | 20 | 123 |  | 321 | 4.6 |"
    text = document.read_text()
    assert added in text and text.count("on 2 cores") == text.count("on 64 cores") == 1
    # Nothing else has changed.
    lines = text.splitlines()
    assert [line for line in before.splitlines() if line not in lines] == []


def test_a_server_that_answered_nothing_has_no_latency(tmp_path):
    document = tmp_path / "b.md"
    document.write_text(f"{report.BEGIN}\n{report.END}\n")
    nothing = dict.fromkeys(("p50", "p95", "p99", "max", "mean"))
    report.write(results(vector_latency={"ours": [run_of(0.0, latency_ms=nothing)]}), document)
    assert "| 0 | nan | nan | nan | nan | 0, 0 |" in document.read_text()


def test_a_document_without_markers_is_refused(tmp_path):
    document = tmp_path / "b.md"
    document.write_text("text")
    with pytest.raises(ValueError, match="results: begin"):
        report.write(results(), document)


def test_each_section_of_the_page_is_that_of_a_row():
    # A row whose title changes would lose its measurements at the next run.
    page = Path(__file__).parents[2] / "docs" / "explanation" / "measurements.md"
    headings = re.findall(r"^### (.*)$", page.read_text("utf8"), re.MULTILINE)
    assert headings and set(headings) <= {row.title for row in ROWS.values()}
