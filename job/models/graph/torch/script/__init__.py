"""Graphs of TorchScript modules."""
