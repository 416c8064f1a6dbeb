"""Reports of task slots, as jobs write and front ends read them."""

import json
from dataclasses import replace

from cluster_serving.protocol.slots import SlotReport, TensorSpec, read_reports

REPORT = SlotReport("start-1", "ready", "OpenVINO", (TensorSpec("x", "float32", (None, 64)),), (), True, "topN(2)")


def test_a_report_is_read_as_it_was_written():
    (report,) = read_reports({b"3": REPORT.to_json().encode()})
    assert report.index == 3
    assert (report.inputs, report.already_batched, report.post_processing) == (REPORT.inputs, True, "topN(2)")
    assert report.model == "OpenVINO: x: float32[?, 64] → "
    assert replace(report, device="gpu:1").model == "OpenVINO on gpu:1: x: float32[?, 64] → "


def test_what_a_newer_version_adds_or_leaves_out_does_no_harm():
    raw = json.loads(REPORT.to_json()) | {"invented": 1}
    del raw["outputs"], raw["max_batch_size"]
    (report,) = read_reports({"0": json.dumps(raw)})
    assert (report.engine, report.outputs, report.max_batch_size) == ("OpenVINO", (), 1)
