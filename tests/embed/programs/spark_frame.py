"""Spark computes a model over a frame; the argument is the model."""

import sys

from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType

from cluster_serving import Predictor
from cluster_serving.embed.frames import for_spark

spark = SparkSession.builder.master("local[1]").getOrCreate()
predict = predict_batch_udf(
    for_spark(Predictor(sys.argv[1])), return_type=ArrayType(FloatType()), batch_size=32, input_tensor_shapes=[[3]]
)
x = [[float(row)] * 3 for row in range(100)]
frame = spark.createDataFrame([(row,) for row in x], "x array<float>")
assert [row["y"] for row in frame.select(predict("x").alias("y")).collect()] == [[2 * n for n in row] for row in x]
print("as expected")
