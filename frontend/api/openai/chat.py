"""Chat completions: the messages of a request become the text of a completion."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cluster_serving.frontend.api.json_text import parse
from cluster_serving.frontend.api.openai import completions
from cluster_serving.frontend.api.openai.parameters import CHAT_DEFAULTS, check_ranges, check_type
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.slots import SlotReport
from cluster_serving.protocol.values.lists import shown

_MESSAGES, _SYSTEM, _USER = "messages", "system", "user"
_SYSTEMS = _SYSTEM, "developer"
"""Roles of the system's messages: newer clients send the latter to models that reason."""

_MOST_TOKENS = "max_completion_tokens"
_FIELDS: Mapping[str, tuple[Any, str]] = {
    "content": (str | list, "a text or a list of objects"),
    "name": (str, "a text"),
    "tool_call_id": (str, "a text"),
    "tool_calls": (list, "a list of objects"),
}
"""Fields of a message besides the role, which a model with `messages` gets as the client sent them."""


def read(body: bytes, most: int, described: Mapping[str, SlotReport | None]) -> completions.CompletionRequest:
    """Read a request; see `completions.read`.

    A model with the input `messages` gets all messages as JSON, as the client sent them. Any other gets the text of the
    user's message, and that of the system's message as the input `system`, if it has that.

    Raises:
        InvalidInput: If there are several messages of users or assistants, and the model takes one text.
    """
    content = dict(parse(body))
    given = _checked_list(content.pop(_MESSAGES, None))
    check_ranges(content)
    if (most_tokens := content.pop(_MOST_TOKENS, None)) is not None:
        check_type(_MOST_TOKENS, most_tokens)
        content["max_tokens"] = most_tokens
    report = described.get(completions.model_of(content))
    if report is None:
        return completions.CompletionRequest((), completions.model_of(content))
    specs = {spec.name: spec for spec in report.inputs}
    takes_all = _MESSAGES in specs
    if not takes_all or _SYSTEM in specs:
        messages = [
            {"role": message["role"], "content": _content(index, message.get("content"))}
            for index, message in enumerate(given)
        ]
    if _SYSTEM in specs:
        content[_SYSTEM] = _text_of(messages, *_SYSTEMS)
    content["prompt"] = json.dumps(given) if takes_all else _turn(messages)
    prompt = specs[_MESSAGES] if takes_all else None
    return completions.to_request(content, most, report, prompt, CHAT_DEFAULTS)


def choice(index: int, said: completions.Said, reason: str | None) -> dict[str, Any]:
    """Return one choice of a chat completion; a message of calls has no text."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": None}
    if said.tool_calls:
        message |= {"content": said.text or None, "tool_calls": _joined(said.tool_calls)}
    return {"index": index, "message": message, "logprobs": None, "finish_reason": reason}


def _joined(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return whole calls of pieces: those of one `index` are one call, whose arguments are joined."""
    whole: dict[Any, dict[str, Any]] = {}
    for position, call in enumerate(calls):
        fields = {name: value for name, value in call.items() if name != "index"}
        first = whole.setdefault(call.get("index", f"alone {position}"), fields)
        if first is not fields:
            more = fields.get("function", {}).get("arguments", "")
            function = first.get("function", {})
            first["function"] = {**function, "arguments": function.get("arguments", "") + more}
    return [*whole.values()]


def piece(index: int, said: completions.Said, reason: str | None, is_first: bool) -> dict[str, Any]:
    """Return a piece of one choice; clients join the values of a field, so the first piece alone has the role."""
    delta: dict[str, Any] = {"role": "assistant"} if is_first else {}
    if said.tool_calls:
        delta["tool_calls"] = said.tool_calls
    if said.text or (is_first and not said.tool_calls):
        delta["content"] = said.text
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}


def _checked_list(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not given or not all(isinstance(message, dict) for message in given):
        raise InvalidInput('\'messages\' is empty, or not a list; expected [{"role": "user", "content": "…"}, …]')
    for index, message in enumerate(given):
        _checked(index, "role", message.get("role"))
        for name, (kind, words) in _FIELDS.items():
            value = message.get(name)
            if not (value is None or isinstance(value, kind)) or not _are_objects(value):
                raise InvalidInput(f"messages[{index}].{name} is {shown(value)}; expected {words}, or null")
    return given


def _are_objects(value: Any) -> bool:
    return not isinstance(value, list) or all(isinstance(each, dict) for each in value)


def _content(index: int, content: Any) -> str:
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if not all(isinstance(part, dict) and part.get("type") == "text" for part in parts):
        raise InvalidInput(f"messages[{index}].content has parts that are not texts")
    return "".join(_checked(index, "content", part.get("text")) for part in parts)


def _checked(index: int, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"messages[{index}].{name} is not a text")
    return value


def _text_of(messages: Sequence[Mapping[str, str]], *roles: str) -> str:
    return "\n".join(message["content"] for message in messages if message["role"] in roles)


def _turn(messages: Sequence[Mapping[str, str]]) -> str:
    if [message["role"] for message in messages if message["role"] not in _SYSTEMS] != [_USER]:
        raise InvalidInput("the model takes one text; expected one message of the user, or a model with 'messages'")
    return _text_of(messages, _USER)
