"""A chat around the generator of examples/handlers: it continues the conversation until the line ends."""

import json

from generator import Handler as Generator

from cluster_serving.job.handlers import END, InvalidInput


def last_text(messages):
    try:
        text = json.loads(messages)[-1]["content"]
    except (ValueError, LookupError, TypeError):
        text = None
    if not isinstance(text, str):
        raise InvalidInput(
            "messages is not the JSON of a list of messages, of which the last one has a text as content"
        )
    return text


class Handler(Generator):
    inputs = {"messages": "str", "max_tokens": "int64", "temperature": "float32"}

    def preprocess(self, request):
        question = last_text(request["messages"])
        most = min(request["max_tokens"], 200)
        # The form of the training: a question, and its answer in the line below.
        return super().preprocess({**request, "prompt": f"Q: {question}\nA: ", "max_tokens": most})

    def piece(self, chosen, count, most):
        return END if self.characters[chosen] == "\n" else super().piece(chosen, count, most)
