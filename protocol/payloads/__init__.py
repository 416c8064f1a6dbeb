"""Large inputs in files."""
