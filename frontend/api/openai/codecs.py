"""Codecs of completions, chat completions and embeddings."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cluster_serving.frontend.api.json_codec import JsonCodec
from cluster_serving.frontend.api.openai import chat, completions, embeddings
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import Call, DataPlane, succeeded
from cluster_serving.frontend.errors import ModelNotReady
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.http.responses import dumps
from cluster_serving.protocol.columns import Outcomes

if TYPE_CHECKING:
    from typing_extensions import Self

Find = Callable[[str], Awaitable[PublishedModel]]

A = TypeVar("A", completions.CompletionRequest, embeddings.EmbeddingRequest)


def outputs(outcomes: Outcomes) -> list[dict[str, Any]]:
    """Return the outputs of all records by name, or raise the first error."""
    return [answer if isinstance(answer, dict) else {"ranking": answer} for answer in succeeded(outcomes)]


async def read_request(
    front: FrontEnd, plane: DataPlane, codec: OpenAICodec[A], body: bytes, find: Find
) -> tuple[A, PublishedModel]:
    """Return what a body asks for, and the model that it names, as `find` returns that.

    Raises:
        ModelNotReady: If nothing is known about the inputs of the model; see also `FrontEnd.check`.
    """
    asked = await plane.read(codec, body, await front.registry.described())
    model = await find(asked.model)
    front.check(model, needs_signature=True)
    if not asked.records:
        # The model has got its signature since its inputs were read.
        asked = await plane.read(codec, body, await front.registry.described())
    if not asked.records:
        raise ModelNotReady(f"model {model.name!r} is not ready: {model.state}")
    return asked, model


class OpenAICodec(JsonCodec[A, list[dict[str, Any]]]):
    """Base of the codecs."""

    protocol = "openai"

    def merge(self, call: Call, model: PublishedModel, asked: A, outcomes: Outcomes) -> list[dict[str, Any]]:
        """Return the outputs of all records, or raise the first error."""
        return outputs(outcomes)


@dataclass(frozen=True, slots=True)
class Completions(OpenAICodec[completions.CompletionRequest]):
    """Codec of one completion."""

    id: str
    created: int

    prefix: ClassVar[str] = "cmpl-"
    names: ClassVar[tuple[str, str]] = "text_completion", "text_completion"
    """`object` of an answer, and of a piece of it."""

    @classmethod
    def new(cls) -> Self:
        """Return the codec of a new answer."""
        return cls(f"{cls.prefix}{uuid.uuid4().hex}", int(time.time()))

    decode = staticmethod(completions.read)
    choice = staticmethod(completions.choice)
    piece = staticmethod(completions.piece)

    def started(self, model: PublishedModel, in_pieces: bool = False) -> dict[str, Any]:
        """Return the fields that an answer begins with, and each piece of it."""
        return {"id": self.id, "object": self.names[in_pieces], "created": self.created, "model": model.name}

    def encode(
        self, model: PublishedModel, asked: completions.CompletionRequest, answer: list[dict[str, Any]]
    ) -> bytes:
        """Write the body of the answer."""
        return dumps(self.started(model) | completions.whole(answer, self.choice, asked.per_prompt))


class Chat(Completions):
    """Codec of one chat completion."""

    prefix = "chatcmpl-"
    names = "chat.completion", "chat.completion.chunk"
    decode = staticmethod(chat.read)
    choice = staticmethod(chat.choice)
    piece = staticmethod(chat.piece)


class Embeddings(OpenAICodec[embeddings.EmbeddingRequest]):
    """Codec of embeddings."""

    decode = staticmethod(embeddings.read)

    def encode(self, model: PublishedModel, asked: embeddings.EmbeddingRequest, answer: list[dict[str, Any]]) -> bytes:
        """Write the body of the answer."""
        return embeddings.write(answer, asked, model.name)
