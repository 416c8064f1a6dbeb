"""A completion in pieces, as events that the client gets while they are made."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from cluster_serving.client.answers.pieces import PieceOrRestart, Restarted
from cluster_serving.frontend.api.openai import completions
from cluster_serving.frontend.api.openai.codecs import Completions
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.http.call import HttpCall
from cluster_serving.frontend.server.http.error_bodies import openai_body
from cluster_serving.frontend.server.http.events import event
from cluster_serving.frontend.server.http.responses import dumps
from cluster_serving.protocol.errors import RequestRestarted, ServingError

NOTHING = completions.Said()
_DONE = event(b"[DONE]")


class CompletionStream:
    """The events of one completion: pieces of its choices, the end of each choice, and the usage if asked for."""

    def __init__(self, codec: Completions, model: PublishedModel, asked: completions.CompletionRequest) -> None:
        self._codec = codec
        self._fields = codec.started(model, in_pieces=True)
        if asked.include_usage:
            # All events but the last one have no usage.
            self._fields |= {"usage": None}
        self._tells_usage, self._tells_each = asked.include_usage, asked.continuous_usage
        self._is_counted = False
        self._choices, self._per_prompt = len(asked.records), asked.per_prompt
        self._begun: set[int] = set()
        self._reasons: dict[int, str] = {}
        self._counts = [(0, 0)] * self._choices

    async def events(
        self, call: HttpCall, pieces: AsyncGenerator[tuple[int, PieceOrRestart], None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events; an error after the first one is an event, too.

        Raises:
            ServingError: The error of a choice, before the first event.
        """
        begun = False
        try:
            async with aclosing(pieces):
                async for index, piece in pieces:
                    if isinstance(piece, Restarted):
                        self._restart(index)
                        continue
                    call.version = piece.version or call.version
                    said = self._take(index, piece.outputs)
                    if said.text or said.tool_calls:
                        begun = True
                        yield self._event([self._piece(index, said)])
            begun = True
            for index in range(self._choices):
                if index not in self._begun:
                    yield self._event([self._piece(index, NOTHING)])
                yield self._event([self._codec.piece(index, NOTHING, self._reasons.get(index, "stop"), False)])
            if self._tells_usage:
                yield event(dumps({**self._fields, "choices": [], "usage": self._usage()}))
        except ServingError as error:
            if not begun:
                raise
            yield event(dumps(openai_body(error)))
        yield _DONE

    def _take(self, index: int, outputs: Mapping[str, Any]) -> completions.Said:
        said = completions.of_piece(outputs)
        if said.reason or said.tool_calls:
            self._reasons[index] = said.reason or "tool_calls"
        counted = completions.counts(outputs)
        self._is_counted |= counted != (None, None)
        counts = zip(counted, self._counts[index], strict=True)
        prompt, completion = (before if count is None else count for count, before in counts)
        self._counts[index] = prompt, completion
        return said

    def _restart(self, index: int) -> None:
        if index in self._begun:
            # Nothing in this API takes a text back.
            raise RequestRestarted("the completion started again after a failure; send the request again")
        self._reasons.pop(index, None)

    def _piece(self, index: int, said: completions.Said) -> dict[str, Any]:
        is_first = index not in self._begun
        self._begun.add(index)
        return self._codec.piece(index, said, None, is_first)

    def _usage(self) -> dict[str, int]:
        return completions.usage(self._counts, self._per_prompt)

    def _event(self, choices: list[dict[str, Any]]) -> bytes:
        # Before the first count, the usage is not known, which is not the same as 0.
        so_far = {"usage": self._usage()} if self._tells_each and self._is_counted else {}
        return event(dumps({**self._fields, "choices": choices, **so_far}))
