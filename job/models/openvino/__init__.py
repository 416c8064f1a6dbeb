"""Models that OpenVINO computes."""
