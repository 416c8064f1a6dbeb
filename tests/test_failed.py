"""The tests that `make test-again` runs."""

import json

from tests.support.programs.failed import failed


def test_a_test_is_run_again_by_its_own_id():
    kept = dict.fromkeys(("tests/a.py::b@tests/a.py", "tests/a.py::c[x@y]", "tests/a.py::d[x@y]@group", "tests/e.py"))
    assert failed(json.dumps(kept)) == ["tests/a.py::b", "tests/a.py::c[x@y]", "tests/a.py::d[x@y]", "tests/e.py"]
