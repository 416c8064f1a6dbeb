"""The channel between two processes of a front end, over a real socket."""

import asyncio
import socket

from cluster_serving.frontend.server.processes.channel import Channel


def test_a_process_that_is_killed_in_the_middle_of_a_line_has_ended():
    async def main():
        ours, theirs = socket.socketpair()
        channel = await Channel.open(ours, {})
        running = asyncio.create_task(channel.run())
        asked = asyncio.create_task(channel.ask("metrics"))
        await asyncio.sleep(0)
        theirs.sendall(b'[1, "", {"some": "met')
        theirs.close()
        await running
        return await asyncio.gather(asked, return_exceptions=True)

    (error,) = asyncio.run(main())
    assert isinstance(error, ConnectionError)
