"""Measures a running job, and compares Cluster Serving with its peers."""
