import re
from xml.etree import ElementTree

import pytest

from cluster_serving.bench.load import charts


def elements(chart, name):
    return [node for node in ElementTree.fromstring(chart).iter() if node.tag.endswith("}" + name)]  # noqa: S314


def test_a_line_shows_every_point_that_its_axes_can_show():
    chart = charts.lines("A < B", {"a&b": [(1, 2), (10, 20)], "c": [(1, 0)]}, "x", "y", "xy")
    ((line,),) = [[path for path in elements(chart, "path") if "stroke: #2f6fdb" in path.get("style", "")][:1]]
    assert len(re.findall("[ML]", line.get("d"))) == 2
    texts = ["".join(node.itertext()) for node in elements(chart, "text")]
    assert {"A < B", "a&b", "x", "y"} <= set(texts)


@pytest.mark.parametrize(
    "chart",
    [
        charts.lines("none", {}, "x", "y"),
        charts.lines("none", {"a": [(1, 0)]}, "x", "y", "y"),
        charts.bars("none", {}, "s"),
        charts.histogram("none", [], [], "ms"),
    ],
)
def test_a_chart_without_values_says_so(chart):
    assert "nothing was measured" in "".join(elements(chart, "text")[0].itertext())


def test_small_charts_are_well_formed():
    assert elements(charts.lines("one", {"a": [(5, 5)]}, "x", "y"), "path")
    assert elements(charts.histogram("one", [1.0, 2.0], [4], "ms"), "path")
    assert "1.5" in charts.bars("one", {"a": 1.5}, "s")


def test_the_same_chart_is_the_same_text():
    first, second = (charts.bars("one", {"a": 1.5, "b": 2.0}, "s") for _ in range(2))
    assert first == second
