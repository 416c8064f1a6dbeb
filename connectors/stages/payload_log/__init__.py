"""Payload log: inputs, outputs, version and latency of a share of the requests, written beside the data path."""
