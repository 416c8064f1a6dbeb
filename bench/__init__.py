"""The load generator, and the benchmark that compares Cluster Serving with its peers."""
