"""The batcher, under any order of arrivals and any clock."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cluster_serving.job.batcher import Batcher

MAX_SIZE, TIMEOUT = 4, 10


class BatcherMachine(RuleBasedStateMachine):
    """Add, wait and flush in any order; check every promise on every batch."""

    def __init__(self):
        super().__init__()
        self.batcher = Batcher(MAX_SIZE, TIMEOUT)
        self.now = 0.0
        self.count = 0
        self.arrived = {}  # signature → [(item, time)], not yet in a batch

    def take(self, batch):
        signatures = {signature for signature, *_ in batch}
        assert len(signatures) == 1, "a batch holds one signature"
        assert 1 <= sum(size for *_, size in batch) <= MAX_SIZE
        waiting = self.arrived[signatures.pop()]
        assert batch == [item for item, _ in waiting[: len(batch)]], "nothing lost, doubled or reordered"
        del waiting[: len(batch)]

    @rule(signature=st.sampled_from("abc"), pause=st.floats(0, TIMEOUT / 2), size=st.integers(1, MAX_SIZE))
    def add(self, signature, pause, size):
        self.now += pause
        self.expire()
        size = min(size, self.batcher.room(signature))
        item = (signature, self.count, size)
        self.count += 1
        self.arrived.setdefault(signature, []).append((item, self.now))
        if (batch := self.batcher.add(signature, item, self.now, size)) is not None:
            assert sum(size for *_, size in batch) == MAX_SIZE
            self.take(batch)
        assert self.batcher.room(signature) > 0

    @rule(pause=st.floats(0, 3 * TIMEOUT))
    def wait(self, pause):
        self.now += pause
        self.expire()

    def expire(self):
        for batch in self.batcher.expire(self.now):
            self.take(batch)

    @rule()
    def flush(self):
        for batch in self.batcher.flush():
            self.take(batch)
        assert not any(self.arrived.values())
        assert self.batcher.next_expiry() is None

    @invariant()
    def none_waits_longer_than_the_timeout(self):
        oldest = [waiting[0][1] for waiting in self.arrived.values() if waiting]
        assert all(arrived + TIMEOUT > self.now for arrived in oldest)
        assert self.batcher.next_expiry() == (min(oldest) + TIMEOUT if oldest else None)


TestBatcher = BatcherMachine.TestCase


@given(st.lists(st.sampled_from("abc")), st.integers(1, 5))
def test_a_flush_gives_the_oldest_signature_first(signatures, size):
    batcher = Batcher(size, TIMEOUT)
    for index, signature in enumerate(signatures):
        batcher.add(signature, index, now=index)
    firsts = [batch[0] for batch in batcher.flush()]
    assert firsts == sorted(firsts)
