"""Requests with an `Idempotency-Key`, after the IETF's draft: a repetition gets the id that the first one got."""

import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import KeyInUse, KeyReused
from cluster_serving.frontend.server.http.call import HttpCall
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.scripts import SETTLE, Call, call_async

_CLAIM_SECONDS = 60
"""Seconds after which the key of a request that a killed front end has begun is free again."""

_MOST_CHARACTERS = 255


class IdempotencyKeys:
    """Keys of the requests to one path, which Redis has, so that all front ends know them.

    Each API key has idempotency keys of its own; callers without one share theirs.

    Args:
        front: The front end.
        path: Path of the requests.
        kept: Seconds for which a key is known after its request.
    """

    def __init__(self, front: FrontEnd, path: str, kept: int) -> None:
        self._path, self._kept = path, kept
        self._home = front.dispatch.home
        self._dispatcher = front.dispatch.dispatcher(self._home)

    async def once(
        self, call: HttpCall, body: bytes, make: Callable[[], Awaitable[str]], undo: Callable[[str], Awaitable[None]]
    ) -> str:
        """Return the id that `make` returns, or the one that it returned for an earlier request of the same key.

        Args:
            call: The request; without the header, its id is always new.
            body: Its body.
            make: Does what the request asks for. If it raises, the key is free again.
            undo: Takes back what `make` has done: Redis did not note its id, so the client gets none.

        Raises:
            InvalidInput: If the key is empty, too long, or not of visible characters.
            KeyReused: If the earlier request had another body.
            KeyInUse: If the earlier request is not answered yet.
        """
        header = call.header(b"idempotency-key")
        if header is None:
            return await make()
        name = json.dumps([call.client, self._path, _checked(header)])
        key = f"{self._home}:idempotency:{hashlib.sha256(name.encode()).hexdigest()}"
        fingerprint = hashlib.sha256(body).hexdigest()
        claim = f"{fingerprint} {secrets.token_hex(8)} "
        if earlier := await self._earlier(key, claim):
            known, _, made = earlier.split(" ")
            if known != fingerprint:
                raise KeyReused("the Idempotency-Key is that of a request with another body; take a new key")
            if not made:
                raise KeyInUse("the first request with this Idempotency-Key is not answered yet; send it again later")
            return made
        try:
            made = await make()
        except BaseException:
            with suppress(ServingError):
                await self._settle(key, claim, "")
            raise
        try:
            if await self._settle(key, claim, claim + made):
                return made
        except ServingError:
            with suppress(ServingError):
                await undo(made)
            raise
        await undo(made)
        raise KeyInUse(f"the request took more than {_CLAIM_SECONDS} s to queue, and was withdrawn; send it again")

    async def _earlier(self, key: str, claim: str) -> str:
        """Claim a key; return the claim that it has already, empty if it had none."""
        with self._dispatcher.using_redis():
            while not await self._dispatcher.db.set(key, claim, nx=True, ex=_CLAIM_SECONDS):
                if earlier := await self._dispatcher.db.get(key):
                    return str(earlier.decode())
        return ""

    async def _settle(self, key: str, claim: str, settled: str) -> bool:
        with self._dispatcher.using_redis():
            return bool(await call_async(self._dispatcher.db, Call(SETTLE, [key], [claim, settled, self._kept])))


def _checked(header: str) -> str:
    """Return a key without the quotes of the draft, which is the same key to clients that leave them out."""
    key = header[1:-1] if len(header) > 1 and header[0] == header[-1] == '"' else header
    if not 1 <= len(key) <= _MOST_CHARACTERS or not all("!" <= character <= "~" for character in key):
        raise InvalidInput(
            f"the header Idempotency-Key is {header[:64]!r}; expected 1 to {_MOST_CHARACTERS} visible characters of "
            "ASCII, such as a UUID"
        )
    return key
