"""Flink configuration of the embedded cluster and of the images."""
