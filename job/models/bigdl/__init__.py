"""Models of BigDL, computed by PyTorch."""
