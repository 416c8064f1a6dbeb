"""The load generator: what `cluster-serving-bench` does."""
