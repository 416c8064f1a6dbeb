"""Flink job: batching, preprocessing, models, post-processing."""
