from cluster_serving.frontend import errors
from cluster_serving.protocol.errors import ERRORS, ServingError


def test_no_error_of_the_front_end_has_the_code_of_another():
    own = [error for error in ServingError.__subclasses__() if error.__module__ == errors.__name__]
    assert own
    assert len(errors.ERRORS) == len(ERRORS) + len(own)
