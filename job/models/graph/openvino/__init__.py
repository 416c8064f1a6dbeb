"""Graphs of OpenVINO networks."""
