"""A handler that answers requests from a real Redis, without Flink."""

import contextlib
import threading
from dataclasses import replace
from itertools import groupby

from cluster_serving.connectors.answer import write_answers
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.pieces import PieceWriter
from cluster_serving.connectors.redis import connect
from cluster_serving.connectors.stream import StreamReader, create_groups
from cluster_serving.job.request import Request
from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from tests.support.handled import load, write

COUNTER = """
    from cluster_serving.job.handlers import END, InvalidInput

    class Handler:
        inputs = {"first": "int64", "count": "int64"}
        outputs = {"number": "int64", "text": "str"}

        def preprocess(self, request):
            if request["count"] < 0:
                raise InvalidInput(f"count is {request['count']}; expected 0 or more")
            return request

        def predict(self, batch):
            firsts, counts = batch["first"], batch["count"]
            for step in range(counts.max()):
                if 13 in firsts + step:
                    raise RuntimeError("unlucky")
                yield [
                    {"number": first + step, "text": f"{first + step} "} if step < count else END
                    for first, count in zip(firsts, counts)
                ]
    """

PARROT = """
    from cluster_serving.job.handlers import END

    class Handler:
        inputs = {"prompt": "str", "max_tokens": "int64", "temperature": "float32", "stop": "str[?]"}
        outputs = {"text": "str", "finish_reason": "str"}

        def predict(self, batch):
            words = [prompt.split() for prompt in batch["prompt"]]
            if "fail" in words[0]:
                raise RuntimeError("as asked")
            for step in range(100):
                records = zip(words, batch["max_tokens"], batch["stop"])
                yield [self.piece(text, step, most, stop) for text, most, stop in records]
                if "fail-late" in words[0]:
                    raise RuntimeError("as asked")

        def piece(self, words, step, most, stop):
            if step > min(most, len(words)):
                return END
            if step == most or step == len(words) or words[step] in stop:
                return {"text": "", "finish_reason": "length" if step == most else "stop"}
            return {"text": words[step] + " "}
    """

EMBEDDER = """
    import numpy as np

    class Handler:
        inputs = {"text": "str"}
        outputs = {"embedding": "float32[3]", "prompt_tokens": "int64"}

        def predict(self, batch):
            sizes = [len(text) for text in batch["text"]]
            return {"embedding": np.array([[n, n / 3, 0] for n in sizes], "f4"), "prompt_tokens": sizes}
    """


@contextlib.contextmanager
def generating(port, job, folder, code=COUNTER, generation=1, version="7", most=10, **model):
    """Answer the requests of a job by a handler while the context is open; `most` requests share a batch."""
    predictor = load(write(folder, code), **model)
    options = RedisOptions(f"redis://127.0.0.1:{port}", job, version=version)
    stopped, ready = threading.Event(), threading.Event()

    def run():
        with connect(options) as client:
            predictor.send_pieces(PieceWriter(client, options))
            client.sadd(JOBS_KEY, job)
            report = replace(predictor.report(), state="ready", version=version)
            client.hset(JobKeys(job).slots(), "0", report.to_json())
            ready.set()
            reader = StreamReader(client, job, f"{job}-{generation}-0", 60_000)
            while not stopped.is_set():
                requests = [Request(entry, "", entry.decode()[1]) for entry in reader.read(most, block_ms=20)]
                for _, batch in groupby(requests, lambda request: sorted(request.inputs)):
                    answers = predictor.start([*batch], alone=False).answers()
                    write_answers(client, job, 60, answers, version)

    thread = threading.Thread(target=run)
    with connect(options) as client:
        create_groups(client, job)
        thread.start()
        assert ready.wait(10)
        try:
            yield
        finally:
            stopped.set()
            thread.join()
            predictor.close()
            client.srem(JOBS_KEY, job)
            client.delete(job, JobKeys(job).dead_letters, JobKeys(job).slots())
