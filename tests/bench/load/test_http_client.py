import asyncio
from contextlib import suppress

import pytest

from cluster_serving.bench.load.http_client import HttpClient, encode_request

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def ask(answers, timeout=5.0):
    """Ask a server twice that answers each connection's requests with these bytes."""

    handlers = []

    async def serve(reader, writer):
        handlers.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError):
            for answer in answers:
                await reader.readuntil(b"body")
                writer.write(answer)
            await reader.read()
        writer.close()
        await writer.wait_closed()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
        client = HttpClient(url)
        request = encode_request(url, b"body", {})
        try:
            return [await client.ask(request, timeout) for _ in range(2)]
        finally:
            await client.close()
            server.close()
            await asyncio.wait(handlers)

    return asyncio.run(main())


def test_a_connection_carries_one_request_after_the_other():
    assert [response.body for response in ask([ANSWER, ANSWER])] == [b"ok", b"ok"]


def test_a_server_that_does_not_answer_is_a_timeout():
    with pytest.raises(TimeoutError):
        ask([ANSWER, b""], timeout=0.2)


def test_what_is_not_http_breaks_the_connection():
    with pytest.raises(ConnectionError, match="not HTTP"):
        ask([b"nonsense\r\n\r\n"])
