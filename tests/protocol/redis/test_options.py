"""Options of redis-py in an address, and those that every connection sets by itself."""

import pytest

from cluster_serving.protocol.redis.connection import connect, connect_async
from cluster_serving.protocol.redis.options import checked_url


@pytest.mark.parametrize("opened", [connect, connect_async])
@pytest.mark.parametrize("options", [{}, {"protocol": 3}])
def test_connections_keep_protocol_2_and_bytes(opened, options):
    url = "redis://h:1/2?protocol=3&client_name=a&decode_responses=true"
    client = opened("localhost", 6379, url, **options)
    found = client.connection_pool.connection_kwargs
    assert (found["protocol"], found["client_name"], found.get("decode_responses", False)) == (2, "a", False)


def test_an_address_keeps_its_other_options():
    assert checked_url("redis://h/0") == "redis://h/0"
    assert checked_url("redis://h/0?protocol=3") == "redis://h/0"
    assert checked_url("unix:///s?db=1&protocol=3") == "unix:///s?db=1"
