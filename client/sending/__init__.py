"""What becomes of the values that a caller passes, and what goes with a request: its file and its span."""
