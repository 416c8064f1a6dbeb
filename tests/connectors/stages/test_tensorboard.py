"""Scalars of a job, read by TensorBoard itself."""

import sys

import pytest

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.stage import AnswerStage
from cluster_serving.connectors.stages import tensorboard
from cluster_serving.connectors.stages.tensorboard import THROUGHPUT, TOTAL
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.metrics import ANSWERED
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures.scalars import scalars
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def make(db, job, tmp_path, monkeypatch):
    """Makes the stage of a slot."""
    monkeypatch.setattr(tensorboard, "_INTERVAL_S", 0.1)

    def make(slot=0, **options):
        options = {"stages": (("tensorboard", str(tmp_path)),), **options}
        return tensorboard.answers(db, RedisOptions("", job, **options), RedisClock(db), Counts(slot))

    yield make
    db.delete(JobKeys(job).stats())


def test_throughput_and_total_are_written_while_records_are_answered(make, db, job, tmp_path):
    # The second stage is that of a job that was started again.
    for totals in ([10, 25], [40]):
        stage = make()
        wait_until(lambda: list(tmp_path.glob("*/*")))
        for total in totals:
            db.hset(JobKeys(job).stats(), ANSWERED.name, total)
            wait_until(lambda: total in dict(scalars(tmp_path / job).get(TOTAL, [])))  # noqa: B023
        stage.close()
    found = scalars(tmp_path / job)
    assert found.keys() == {THROUGHPUT, TOTAL}
    assert found[TOTAL] == [(10, 10), (25, 25), (40, 40)]
    assert [step for step, _ in found[THROUGHPUT]] == [10, 25, 40]
    assert all(rate > 0 for _, rate in found[THROUGHPUT])


def test_one_slot_writes_and_only_if_asked(make):
    for stage in (make(slot=1), make(shadow=True), make(stages=())):
        assert type(stage) is AnswerStage


def test_without_the_package_the_log_names_the_extra(make, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    make().close()
    assert "pip install 'cluster-serving[tensorboard]'" in caplog.text
