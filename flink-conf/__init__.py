"""Flink configuration, used by the embedded cluster and by the images alike."""
