"""Graphs of programs that PyTorch has exported."""
