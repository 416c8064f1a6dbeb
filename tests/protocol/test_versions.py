"""The version that answers a request."""

import pytest

from cluster_serving.protocol.versions import choose, not_served


@pytest.mark.parametrize(
    ("wanted", "served", "chosen"),
    [
        ("2", {"1": True, "2": True}, "2"),
        ("1", {"2": True}, None),
        # Updates of a model without versions: clients that name the first one need not know of them.
        ("1", {"4": False}, "4"),
        ("1", {"2": False, "1": False}, "1"),
        ("3", {"4": False}, None),
    ],
)
def test_a_version_that_is_served_answers(wanted, served, chosen):
    assert choose(wanted, served) == chosen


def test_the_error_names_the_versions_that_are_served():
    assert str(not_served("digits", "3", ["1", "2"])) == "version '3' of 'digits' is not served; served are: 1, 2"
