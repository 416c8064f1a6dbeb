"""Graphs of ONNX models."""
