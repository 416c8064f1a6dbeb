"""Pipeline of Beam that adds a model's outputs to ten records, of which one is refused; the argument is the model."""

import sys

import apache_beam as beam
from apache_beam.ml.inference.base import RunInference
from apache_beam.testing.util import assert_that, equal_to

from cluster_serving import Predictor
from cluster_serving.embed.beam import ClusterServing

records = [{"x": [float(row)] * (2 if row == 4 else 3)} for row in range(10)]


def text(result):
    found = result.inference
    return getattr(found, "code", None) or f"{result.example['x'][0]} {found['y'].tolist()}"


with beam.Pipeline() as pipeline:
    handler = ClusterServing(Predictor(sys.argv[1]), max_batch_size=4)
    results = pipeline | beam.Create(records) | RunInference(handler) | beam.Map(text)
    assert_that(results, equal_to([*(f"{row}.0 {[2.0 * row] * 3}" for row in range(10) if row != 4), "INVALID_INPUT"]))
print("as expected")
