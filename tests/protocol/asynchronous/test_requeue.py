"""Dead letters that are queued again."""

import pytest

from cluster_serving.protocol.asynchronous.callbacks import CALLBACK_FAILED, SERDE, Callback
from cluster_serving.protocol.asynchronous.requeue import requeue_call
from cluster_serving.protocol.dead_letters import DeadLetter
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.scripts import PUT_LEASES, REQUEUE


def letter(data, code):
    return DeadLetter(Entry(b"", "a", data, SERDE), len(data), code, "", 0.0)


def test_only_a_letter_with_the_code_of_callbacks_is_one():
    content = Callback("a", "http://host", "m").content()
    assert requeue_call("job", "1-1", letter(content, CALLBACK_FAILED)).script == PUT_LEASES
    assert requeue_call("job", "1-1", letter(content, "POISON_REQUEST")).script == REQUEUE


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"no": "callback"}', b"\xff"])
def test_a_callback_that_cannot_be_read_is_refused(content):
    with pytest.raises(InvalidInput, match="has no callback"):
        requeue_call("job", "1-1", letter(content, CALLBACK_FAILED))
