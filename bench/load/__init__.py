"""The load generator `cluster-serving-bench`."""
