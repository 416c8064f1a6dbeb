"""Completions: the parameters of a request become inputs of the model, and its outputs choices."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cluster_serving.frontend import dataplane
from cluster_serving.frontend.api.json_text import parse
from cluster_serving.frontend.api.openai.parameters import DEFAULTS, NEUTRAL, check, is_forbidden
from cluster_serving.frontend.errors import MOST_STREAMS, check_count
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array, Input
from cluster_serving.protocol.original.json import to_input
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from cluster_serving.protocol.tensors import Encoded, encode
from cluster_serving.protocol.token_counts import COMPLETION, PROMPT
from cluster_serving.protocol.values.lists import shown

_STREAM_OPTIONS = frozenset({"include_usage", "include_obfuscation", "continuous_usage_stats"})
_NUMBERS = frozenset({PROMPT, COMPLETION})
_COUNTS = {"n": 1, "stream": False}
_OTHERS = frozenset({"model", "prompt", "n", "stream", "stream_options"})


@dataclass(frozen=True, slots=True)
class CompletionRequest(dataplane.DecodedRequest):
    """A request for completions; it has a record for each choice, and none if nothing is known about the model.

    Attributes:
        model: Name of the model; empty for the default model.
        stream: True if the client wants the choices in pieces.
        include_usage: True if it wants the usage after the last piece.
        continuous_usage: True if it wants the usage so far in each piece, too.
        per_prompt: Number of choices of each prompt, which follow each other.
    """

    model: str
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    per_prompt: int = 1


def read(body: bytes, most: int, described: Mapping[str, SlotReport | None]) -> CompletionRequest:
    """Read a request; `described` has the report of each model by name, the empty name is the default model's.

    The prompt is the input `prompt`, or else the only text that the model takes. Each other parameter is the input of
    its name; a list or an object is JSON for an input that is one text. A parameter of OpenAI's API that the model does
    not take is left out, and one that the client does not send has the default of that API.

    Raises:
        InvalidInput: If the model takes no text, a parameter is unknown, or a value does not fit.
        RequestTooLarge: If there are more than `most` choices.
    """
    content = parse(body)
    model = model_of(content)
    report = described.get(model)
    return CompletionRequest((), model) if report is None else to_request(content, most, report)


def to_request(
    content: Mapping[str, Any],
    most: int,
    report: SlotReport,
    prompt: TensorSpec | None = None,
    defaults: Mapping[str, Any] = DEFAULTS,
) -> CompletionRequest:
    """Return the request with a content, for a model that is known, and whose `prompt` may be; see `read`."""
    model = model_of(content)
    specs = {spec.name: spec for spec in report.inputs}
    prompt = prompt or prompt_of(report)
    check(content, specs.keys())
    unknown = sorted(content.keys() - _OTHERS - DEFAULTS.keys() - NEUTRAL.keys() - specs.keys())
    if unknown:
        raise InvalidInput(
            f"there is no parameter {unknown[0][:64]!r}; besides those of OpenAI's API the model takes "
            f"{', '.join(specs)}"
        )
    shared: dict[str, Input] = {}
    for name, spec in specs.items():
        if name == prompt.name:
            continue
        # A model that does not take the choice would call tools all the same.
        value = None if is_forbidden(name, content, specs) else content.get(name)
        if value is None:
            value = _default(name, spec, defaults)
        if value is None:
            raise InvalidInput(f"{name!r} is missing; the model expects {spec}")
        shared[name] = _value(name, value, spec)
    prompts = content.get("prompt")
    texts: list[Any] = prompts if isinstance(prompts, list) else [prompts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidInput("'prompt' is not a text; expected a text or a list of texts")
    count, stream = (default if content.get(name) is None else content[name] for name, default in _COUNTS.items())
    if type(count) is not int:
        raise InvalidInput(f"'n' is {shown(count)}; expected a whole number")
    if type(stream) is not bool:
        raise InvalidInput(f"'stream' is {shown(stream)}; expected true or false")
    check_count("'prompt', by 'n',", len(texts) * count, min(most, MOST_STREAMS))
    records = [{**shared, prompt.name: text_input(prompt, text)} for text in texts]
    encoded = [Encoded(encode(record)) for record in records]
    choices = [one for one in encoded for _ in range(count)]
    includes_usage, is_continuous = _usage_options(content.get("stream_options"))
    counted = "" if stream and not includes_usage else json.dumps([prompt.name, *(specs.keys() & {"system"})])
    return CompletionRequest(choices, model, stream, includes_usage, is_continuous, count, counted=counted)


def model_of(content: Mapping[str, Any]) -> str:
    """Return the name of the model of a request; empty for the default model."""
    name = content.get("model", "")
    if not isinstance(name, str):
        raise InvalidInput("'model' is not a text; expected the name of a model")
    return name


def prompt_of(report: SlotReport) -> TensorSpec:
    """Return the input of a model that takes the text of a request."""
    others = DEFAULTS.keys() | NEUTRAL.keys() | {"messages"}
    texts = [spec for spec in report.inputs if spec.dtype == "str" and spec.name not in others]
    named = [spec for spec in texts if spec.name in ("prompt", "text", "input")]
    found = named or texts
    if not found and any(spec.name == "messages" for spec in report.inputs):
        raise InvalidInput("the model takes the input 'messages'; POST its messages to /v1/chat/completions")
    if len(found) != 1:
        takes = ", ".join(map(str, report.inputs)) or "inputs that it does not declare"
        raise InvalidInput(f"the model takes {takes}; expected one text, such as the input 'prompt'")
    return found[0]


def takes(report: SlotReport) -> frozenset[str]:
    """Return what a model answers: `completions` or `chat`, if it takes no input beside their parameters.

    A generator without `outputs` does not tell them; one that takes `messages` is a chat.
    """
    names = {spec.name for spec in report.inputs}
    others = "finish_reason", "tool_calls"
    texts = [spec for spec in report.outputs if spec.dtype == "str" and spec.name not in others]
    texts = [spec for spec in texts if spec.name == "text"] or texts
    is_open = "messages" in names and not report.outputs
    if not is_open and (len(texts) != 1 or texts[0].record_shape != ()):
        return frozenset()
    known = DEFAULTS.keys() | NEUTRAL.keys() | {"messages", "system"}
    if "messages" in names:
        return frozenset({"chat"} if names <= known else ())
    try:
        prompt = prompt_of(report).name
    except InvalidInput:
        return frozenset()
    return frozenset({"chat", *(() if "system" in names else ("completions",))} if names <= known | {prompt} else ())


def text_input(spec: TensorSpec, text: str) -> Array:
    """Return a text as an input of the shape that a model takes."""
    return np.full(() if spec.record_shape == () else (1,), text, object)


def whole(
    answers: Sequence[Mapping[str, Any]], make: Callable[..., dict[str, Any]], per_prompt: int = 1
) -> dict[str, Any]:
    """Return the choices of complete answers, each made as `choice` does, and the usage."""
    choices = []
    for index, outputs in enumerate(answers):
        said = of_piece(outputs)
        choices.append(make(index, said, said.reason or ("tool_calls" if said.tool_calls else "stop")))
    return {"choices": choices, "usage": usage(map(counts, answers), per_prompt)}


def usage(pairs: Iterable[tuple[int | None, int | None]], per_prompt: int = 1) -> dict[str, int]:
    """Return the sum of the `counts` of choices, where a prompt counts once; what the model does not count is 0."""
    prompts, completions = zip(*pairs, strict=True)
    prompt, completion = (sum(count or 0 for count in each) for each in (prompts[::per_prompt], completions))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def counts(outputs: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the tokens of prompt and completion that the outputs of a model count, each None if they do not."""
    return _last(outputs, PROMPT), _last(outputs, COMPLETION)


_REASONS = "stop", "length", "tool_calls", "content_filter", "function_call"
"""The values of `finish_reason` that clients know."""


class Said(NamedTuple):
    """What an answer, or a piece of it, says; each empty if it does not."""

    text: str = ""
    reason: str = ""
    tool_calls: Sequence[Any] = ()


def of_piece(outputs: Mapping[str, Any]) -> Said:
    """Return what the outputs of a model say.

    The text is the output `text`, or else the only text beside `finish_reason`; the calls are the output `tool_calls`.

    Raises:
        InvalidInput: If the outputs have no text, but others than numbers of tokens.
    """
    texts = {name: value.item() for name, value in outputs.items() if _is_text(value)}
    reason = _last_reason(texts.pop("finish_reason", ""))
    calls = outputs.get("tool_calls")
    calls = calls.item() if isinstance(calls, np.ndarray) and calls.ndim == 0 else ()
    # Of an answer in pieces, the whole has a list of their lists.
    calls = [call for part in calls or () for call in (part if isinstance(part, list) else [part])]
    if not all(isinstance(call, dict) for call in calls):
        raise InvalidInput("the model gives an output 'tool_calls' that is not a list of objects")
    if "text" in texts:
        texts = {"text": texts["text"]}
    if len(texts) > 1 or not (texts or reason or calls or outputs.keys() <= _NUMBERS):
        raise InvalidInput(f"the model gives the outputs {', '.join(outputs)}; expected one text, named 'text'")
    return Said("".join(texts.values()), reason, calls)


def _last_reason(given: str) -> str:
    """Return the last reason of a text that may join those of several pieces."""
    return next((reason for reason in _REASONS if given.endswith(reason)), given)


def choice(index: int, said: Said, reason: str | None) -> dict[str, Any]:
    """Return one choice of a completion."""
    return {"index": index, "text": said.text, "logprobs": None, "finish_reason": reason}


def piece(index: int, said: Said, reason: str | None, is_first: bool) -> dict[str, Any]:
    """Return a piece of one choice, which looks as a whole one."""
    return choice(index, said, reason)


def _default(name: str, spec: TensorSpec, defaults: Mapping[str, Any]) -> Any:
    """Return the value of an input that the client does not send; None if the client has to send it."""
    if name not in NEUTRAL:
        return defaults.get(name)
    if spec.dtype == "str":
        return ""
    first = NEUTRAL[name][0]
    return first if isinstance(first, bool | int | float | list) else None


def _usage_options(options: Any) -> tuple[bool, bool]:
    """Return `include_usage` and vLLM's `continuous_usage_stats`."""
    given = {} if options is None else options
    known = isinstance(given, dict) and given.keys() <= _STREAM_OPTIONS
    if not known or not all(type(value) is bool for value in given.values()):
        raise InvalidInput(f"'stream_options' is {shown(options)}; expected {{\"include_usage\": true}}")
    includes, is_continuous = given.get("include_usage", False), given.get("continuous_usage_stats", False)
    if is_continuous and not includes:
        raise InvalidInput(
            "'stream_options' has 'continuous_usage_stats' without 'include_usage'; set that to true, too"
        )
    return includes, is_continuous


def _is_text(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 0 and isinstance(value.item(), str)


def _last(outputs: Mapping[str, Any], name: str) -> int | None:
    """Return a count, which may be in each piece of an answer; the last one counts."""
    value = outputs.get(name)
    return None if value is None or not np.size(value) else int(np.ravel(value)[-1])


def _is_document(value: Any) -> bool:
    """Return True for an object, and for a list of anything but texts."""
    return isinstance(value, dict) or (isinstance(value, list) and not all(isinstance(one, str) for one in value))


def _value(name: str, value: Any, spec: TensorSpec) -> Input:
    if spec.dtype == "str":
        if spec.record_shape == () and (_is_document(value) or (isinstance(value, bool) and name in NEUTRAL)):
            return text_input(spec, "" if value in ({}, []) else json.dumps(value))
        texts = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise InvalidInput(f"{name!r} is not a text; the model expects {spec}")
        if spec.record_shape == ():
            if len(texts) > 1:
                raise InvalidInput(f"{name!r} is a list of {len(texts)} texts; the model expects one text")
            # `stop` has no texts by default.
            return text_input(spec, texts[0] if texts else "")
        return np.fromiter(texts, object)
    # `logprobs` is a number of completions, and true or false of chats.
    is_truth = isinstance(value, bool) and spec.dtype not in ("", "bool") and name != "logprobs"
    if isinstance(value, str | dict) or is_truth:
        raise InvalidInput(f"{name!r} is {shown(value)}; the model expects {spec}")
    return to_input(name, value, spec)
