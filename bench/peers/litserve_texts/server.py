"""all-MiniLM-L6-v2 by sentence-transformers, behind LitServe as its page on embeddings has it, or in a loop.

https://lightning.ai/docs/litserve/features/open-ai-embedding-spec

Usage: python server.py                   serves
       python server.py SECONDS FILE...   prints how many files a second it embeds; each has a list of texts as JSON
       python server.py answers FILE...   prints the embeddings of each file
"""

import json
import os
import sys
import time
from itertools import cycle
from pathlib import Path

import litserve as ls
from sentence_transformers import SentenceTransformer

WORK = json.loads(os.environ["BENCH_WORK"])


class Api(ls.LitAPI):
    def setup(self, device: str) -> None:
        self.model = SentenceTransformer(WORK["model"], device=device)

    def predict(self, texts: list) -> list:
        return self.model.encode(texts)

    def encode_response(self, output: list) -> dict:
        return {"embeddings": output.tolist()}


def loop(seconds: str, *files: str) -> object:
    model = SentenceTransformer(WORK["model"], device="cpu")
    requests = [json.loads(Path(file).read_bytes()) for file in files]
    answers = [model.encode(texts).tolist() for texts in requests]
    if seconds == "answers":
        return answers
    started = time.perf_counter()
    for count, texts in enumerate(cycle(requests), 1):
        model.encode(texts)
        if (elapsed := time.perf_counter() - started) > float(seconds):
            return {"rate": count / elapsed}


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(loop(*sys.argv[1:])))
    else:
        server = ls.LitServer(Api(spec=ls.OpenAIEmbeddingSpec()), accelerator="cpu")
        server.run(host="127.0.0.1", port=WORK["ports"][0], generate_client_file=False, log_level="warning")
