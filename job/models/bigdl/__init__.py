"""Models of BigDL."""
