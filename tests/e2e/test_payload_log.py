"""What a job of process mode writes of its requests; `tests/slot` has one of thread mode."""

from tests.support.fixtures import both_modes, scalars


def test_a_job_of_process_mode_logs_what_clients_sent_and_got(started, cluster, tmp_path):
    queue = both_modes.requests_are_logged(started, tmp_path, tensorboard=True, executionMode="process")
    scalars.are_written(cluster.folder / "logged" / "tensorboard" / "logged", queue, 103)
