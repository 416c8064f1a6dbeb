"""The markers and groups that tests get."""

import pytest

from cluster_serving.launcher.shipping import environment
from tests.support.fixtures import front_end, markers
from tests.support.fixtures.commands import run
from tests.support.fixtures.redis_server import RedisServer
from tests.support.programs.shell import shell_problem

FILE = "tests/job/models/test_engines.py::test_it"


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        (f"{FILE}[ONNX Runtime-3]", "onnx"),
        (f"{FILE}[Keras]", "tensorflow"),
        ("tests/job/models/torch/test_script.py::test_it", "torch"),
        ("tests/job/models/tabular/test_xgboost.py::test_it", "tabular"),
        ("tests/job/models/test_onnx.py::test_it_is_that_of_torch", "engines"),
        (FILE, "engines"),
    ],
)
def test_tests_of_one_engine_are_a_group_and_those_of_several_another(nodeid, group):
    assert markers.engine_group(nodeid) == group


def test_the_time_of_fast_tests_is_that_of_tests_with_no_marker_of_the_others():
    def report(seconds, *keywords):
        return pytest.TestReport(
            "a", ("a", 0, "a"), dict.fromkeys(keywords, 1), "passed", None, "call", duration=seconds
        )

    assert markers.fast_seconds([report(1.5), report(2, "parametrize"), report(40, "flink"), "no report"]) == 3.5


def test_a_test_starts_a_process_if_it_or_a_function_of_the_tests_that_it_names_does():
    def through_a_module():
        front_end.launched(None, "job")

    def through_a_class():
        RedisServer("folder")

    def through_a_service():
        environment.ensure({"job"})

    def not_at_all():
        shell_problem("echo")
        front_end.accepts("http://localhost")

    starting = (run, through_a_module, through_a_class, through_a_service)
    assert [markers.starts_process(each) for each in (*starting, not_at_all)] == [True] * 4 + [False]
