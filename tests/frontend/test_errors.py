from cluster_serving.frontend.errors import ERRORS, FRONT_END_ERRORS
from cluster_serving.protocol import errors


def test_no_error_of_the_front_end_has_the_code_of_another():
    assert len(ERRORS) == len(errors.ERRORS) + len(FRONT_END_ERRORS)
