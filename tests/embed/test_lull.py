"""When a client that computes only what a job has no other requests for may send."""

import pytest

from cluster_serving.embed.lull import Lull


@pytest.fixture
def used():
    """A job at time 1, whose latest request of others came at that time, and is answered."""

    def used(share):
        lull = Lull(share)
        lull.look(0, read="7", waiting=0)
        lull.look(1, read="8", waiting=0)
        return lull

    return used


def test_an_unused_job_gets_batch_after_batch():
    lull = Lull(0.01)
    for now in range(100):
        lull.look(now, read="7", waiting=0)
        assert lull.pause(now, in_flight=now) == 0


def test_nothing_is_sent_while_others_wait():
    lull = Lull(1)
    lull.look(0, read="7", waiting=1)
    assert lull.pause(0, in_flight=0) > 0
    lull.look(1, read="8", waiting=0)
    assert lull.pause(1, in_flight=0) == 0


def test_one_batch_at_a_time_is_sent_while_others_use_the_job(used):
    lull = used(1)
    assert lull.pause(1, in_flight=0) == 0
    assert lull.pause(2, in_flight=1) > 0
    assert lull.pause(3, in_flight=0) == 0


@pytest.mark.parametrize(("share", "rest"), [(0.5, 0.25), (0.01, 24.75), (1, 0)])
def test_batches_take_their_share_of_the_time_while_others_use_the_job(used, share, rest):
    lull = used(share)
    assert lull.pause(1, in_flight=0) == 0
    now = 1.25
    while pause := lull.pause(now, in_flight=0):
        now += pause
        lull.look(now, read=now, waiting=0)
    assert now == pytest.approx(1.25 + rest)


def test_a_job_counts_as_unused_a_while_after_the_last_request(used):
    lull = used(0.001)
    assert lull.pause(1, in_flight=0) == 0
    for now, sends in ((2, False), (10.9, False), (11.1, True)):
        lull.look(now, read="8", waiting=0)
        assert (lull.pause(now, in_flight=0) == 0) is sends


def test_batches_are_short_while_others_use_the_job(used):
    lull, now, sizes = used(1), 1.0, []
    for _ in range(6):
        assert lull.pause(now, in_flight=0) == 0
        sizes.append(lull.size(8))
        # Each record takes 3 ms.
        now += 0.003 * sizes[-1]
    assert sizes == [1, 2, 4, 2, 4, 2]


def test_batches_are_as_large_as_they_can_be_while_the_job_is_unused():
    lull = Lull(0.01)
    lull.look(0, read="7", waiting=0)
    assert lull.pause(0, in_flight=0) == 0
    assert lull.size(256) == 256
