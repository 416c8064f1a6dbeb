"""Jobs: start, readiness, stop, resubmission, and their dead letters."""
