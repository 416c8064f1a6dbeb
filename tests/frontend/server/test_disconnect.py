"""Clients that close the connection before they are answered."""

import json

import pytest

from tests.support.fixtures.front_end import connect
from tests.support.fixtures.waiting import wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}]}).encode()


@pytest.mark.usefixtures("vectors")
def test_a_client_that_goes_away_takes_its_request_with_it(serve, db, job):
    url = serve().url
    with connect(url) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY))
        wait_until(lambda: db.xlen(job) == 1)
    wait_until(lambda: db.xlen(job) == 0)
