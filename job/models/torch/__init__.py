"""Models that PyTorch computes."""
