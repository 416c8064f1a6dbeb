"""Daft computes a model over a frame; the argument is the model."""

import sys

import daft

from cluster_serving import Predictor
from cluster_serving.embed.frames import for_daft

x = [[float(row)] * (2 if row == 4 else 3) for row in range(10)]
predict = for_daft(Predictor(sys.argv[1]))
found = daft.from_pydict({"x": x}).select(predict(daft.col("x")).alias("answer")).to_pydict()["answer"]
assert [row["y"] for row in found] == [[2 * number for number in row] if len(row) == 3 else None for row in x]
assert [bool(row["error"]) for row in found] == [len(row) == 2 for row in x]
print("as expected")
