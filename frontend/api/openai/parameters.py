"""Parameters of completions in OpenAI's API: their defaults, their types, and the numbers that they may have."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.values.lists import shown

DEFAULTS: Mapping[str, Any] = {
    "best_of": 1,
    "echo": False,
    "frequency_penalty": 0.0,
    "logit_bias": {},
    "logprobs": 0,
    "max_tokens": 16,
    "presence_penalty": 0.0,
    "prompt_cache_key": "",
    "prompt_cache_retention": "",
    "reasoning_effort": "",
    "safety_identifier": "",
    "seed": 0,
    "stop": [],
    "suffix": "",
    "temperature": 1.0,
    "top_logprobs": 0,
    "top_p": 1.0,
    "user": "",
    "verbosity": "",
}
"""Parameters of OpenAI's API that a model may take as inputs of these names, and their values if they are not sent."""

CHAT_DEFAULTS: Mapping[str, Any] = {**DEFAULTS, "max_tokens": 2**31 - 1}
"""Defaults of a chat, whose answer has no limit; the number fits any input of 32 bits."""

NEUTRAL: Mapping[str, Sequence[Any]] = {
    "add_special_tokens": (True,),
    "audio": (None,),
    "detokenize": (True,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1.0,),
    "metadata": ({},),
    "min_p": (0.0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (None,),
    "prompt_logprobs": (None,),
    "repetition_penalty": (1.0,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "stop_token_ids": ([],),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_k": (0, -1),
    "use_beam_search": (False,),
    "web_search_options": (None,),
}
"""Parameters that a model takes as inputs, empty by default, or else with the values that ask for nothing.

Some are those of vLLM, which tools of benchmarks send to every server.
"""

_CHOSEN_BY = {"tools": "tool_choice", "functions": "function_call"}
"""What a model may call, and the parameter whose value `none` forbids that."""

_LARGEST = 2**63 - 1

RANGES: Mapping[str, tuple[float, float]] = {
    "best_of": (0, 20),
    "frequency_penalty": (-2, 2),
    "logprobs": (0, 5),
    "max_completion_tokens": (0, _LARGEST),
    "max_tokens": (0, _LARGEST),
    "n": (1, 128),
    "presence_penalty": (-2, 2),
    "seed": (-_LARGEST - 1, _LARGEST),
    "temperature": (0, 2),
    "top_logprobs": (0, 20),
    "top_p": (0, 1),
}
"""Smallest and largest value of a parameter, as OpenAI's API documents them."""

_BIASES = -100, 100
"""Smallest and largest value of a token in `logit_bias`."""

_KINDS: Mapping[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((float, int), "a number"),
    str: ((str,), "a text"),
    list: ((list, str), "a text or a list of texts"),
    dict: ((dict,), "an object"),
}
"""Types of the values of a parameter, by the type of its default."""


def check(content: Mapping[str, Any], taken: Collection[str]) -> None:
    """Check the parameters of a request.

    Args:
        content: Parameters as sent.
        taken: Names of the inputs of the model.

    Raises:
        InvalidInput: If a number is out of its range. Also if a parameter that the model does not take has another
            type than in OpenAI's API, or asks for what the model cannot do.
    """
    check_ranges(content)
    for name in sorted(NEUTRAL.keys() & content.keys() - {*taken}):
        given = content[name]
        asks = not any(_is_same(given, value) for value in (None, *NEUTRAL[name]))
        if asks and not (isinstance(given, list) and is_forbidden(name, content, taken)):
            raise InvalidInput(
                f"the model has no input {name!r}, and cannot take {shown(given)}; leave it out, or let the "
                "handler of the model declare that input"
            )
    for name in sorted(DEFAULTS.keys() & content.keys() - {*taken}):
        check_type(name, content[name])


def is_forbidden(name: str, content: Mapping[str, Any], taken: Collection[str]) -> bool:
    """Return True if a request forbids the calls of a parameter, and the model does not take that choice itself."""
    chooser = _CHOSEN_BY.get(name, "")
    return chooser not in taken and content.get(chooser) == "none"


def _is_same(value: Any, neutral: Any) -> bool:
    """Return True for equal values; true and false equal no number."""
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)


def check_ranges(content: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` if a number is out of its range; `check_type` says what is not a number."""
    for name in sorted(RANGES.keys() & content.keys()):
        _check_range(name, content[name], RANGES[name])
    biases = content.get("logit_bias")
    for token, bias in biases.items() if isinstance(biases, dict) else ():
        _check_range(f"logit_bias.{token[:32]}", bias, _BIASES)


def _check_range(name: str, value: Any, limits: tuple[float, float]) -> None:
    least, most = limits
    if type(value) in (int, float) and not least <= value <= most:
        expected = f"at least {least}" if most == _LARGEST else f"from {least} to {most}"
        raise InvalidInput(f"{name!r} is {str(value)[:32]}; expected a number {expected}")


def check_type(name: str, value: Any) -> None:
    """Raise `InvalidInput` if a parameter has another type than in OpenAI's API."""
    # `logprobs` is a number of completions, and true or false of chats.
    if value is None or (name == "logprobs" and isinstance(value, bool)):
        return
    kinds, words = _KINDS[type(DEFAULTS.get(name, 0))]
    if type(value) not in kinds or (isinstance(value, list) and not all(isinstance(each, str) for each in value)):
        raise InvalidInput(f"{name!r} is {shown(value)}; expected {words}")
