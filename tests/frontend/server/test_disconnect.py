"""Clients that close the connection before they are answered."""

import json
import logging
import socket
import struct

import httpx
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


@pytest.mark.usefixtures("echo")
def test_clients_that_hang_up_leave_no_errors(serve, report, caplog):
    report(("x", "float32", (None,)))
    url = serve().url
    request = b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
    for _ in range(20):
        connections = [connect(url) for _ in range(10)]
        for connection in connections:
            connection.sendall(request * 5)
        connections[0].recv(1)
        for connection in connections:
            # Closed at once, with answers on their way.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
    assert httpx.post(f"{url}/predict", content=BODY).status_code == 200
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
