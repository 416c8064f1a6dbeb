"""A chat around the generator of examples/handlers: it continues the conversation until the line ends."""

import json

from generator import Handler as Generator

from cluster_serving.job.handlers import END, InvalidInput


def last_text(messages):
    """Return the text of the last message, whose content is one text, or a list of parts with texts."""
    try:
        content = json.loads(messages)[-1]["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        return "".join(part["text"] for part in parts)
    except (ValueError, LookupError, TypeError):
        raise InvalidInput(
            "messages is not the JSON of a list of messages, of which the last one has a text as content"
        ) from None


class Handler(Generator):
    inputs = {"messages": "str", "max_tokens": "int64", "temperature": "float32"}

    def preprocess(self, request):
        question = last_text(request["messages"])
        most = min(request["max_tokens"], 200)
        # The form of the training: a question, and its answer in the line below.
        return super().preprocess({**request, "prompt": f"Q: {question}\nA: ", "max_tokens": most})

    def piece(self, chosen, count, most):
        return END if self.characters[chosen] == "\n" else super().piece(chosen, count, most)
