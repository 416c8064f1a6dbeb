"""What a job writes of its requests: the payload log, and the scalars for TensorBoard."""

from tests.support.fixtures import both_modes, scalars


def test_a_job_logs_what_clients_sent_and_got(served, tmp_path):
    board = tmp_path / "tensorboard"
    queue = both_modes.requests_are_logged(served, tmp_path, tensorboard=str(board))
    scalars.are_written(board / "logged", queue, 103)
