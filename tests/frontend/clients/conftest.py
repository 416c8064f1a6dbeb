"""A real front end with models of every kind, which answer from a real Redis without Flink."""

from contextlib import ExitStack

import httpx
import pytest

from tests.support.fixtures.generating import EMBEDDER, PARROT, generating
from tests.support.fixtures.waiting import wait_until

VECTOR = """
    class Handler:
        inputs = {"x": "float32[3]"}
        outputs = {"y": "float32[3]"}

        def predict(self, batch):
            return {"y": -batch["x"]}
    """

WORD = """
    class Handler:
        inputs = {"word": "str"}
        outputs = {"loud": "str"}

        def predict(self, batch):
            return {"loud": [word.upper() for word in batch["word"]]}
    """

TABLE = """
    import numpy as np

    class Handler:
        inputs = {"age": "float32", "town": "str"}
        outputs = {"price": "float32"}

        def predict(self, batch):
            sizes = np.array([len(town) for town in batch["town"]], np.float32)
            return {"price": np.nan_to_num(batch["age"], nan=1) * sizes}
    """

WEATHER = """
    import json

    class Handler:
        inputs = {"messages": "str", "tools": "str"}

        def predict(self, batch):
            yield [self.piece(*record) for record in zip(batch["messages"], batch["tools"])]

        def piece(self, messages, tools):
            last = json.loads(messages)[-1]
            if last["role"] == "tool" or not tools:
                return {"text": f"It says: {last['content']}"}
            call = {"name": json.loads(tools)[0]["function"]["name"], "arguments": '{"town": "Ulm"}'}
            return {"tool_calls": [{"index": 0, "id": "call-1", "type": "function", "function": call}]}
    """

MODELS = {"parrot": PARROT, "weather": WEATHER, "embedder": EMBEDDER, "vector": VECTOR, "word": WORD, "table": TABLE}


@pytest.fixture
def models(redis_server, serve, tmp_path):
    """A front end with `MODELS`."""
    with ExitStack() as stack:
        for name, code in MODELS.items():
            (tmp_path / name).mkdir()
            stack.enter_context(generating(redis_server.port, name, tmp_path / name, code))
        front = serve(f"--models={','.join(MODELS)}", f"--requiredModels={','.join(MODELS)}")
        wait_until(lambda: httpx.get(f"{front.url}/health/ready").is_success)
        yield front
