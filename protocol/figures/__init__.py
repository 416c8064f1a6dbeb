"""Counts, metrics and totals of a job, and the comparison of two versions."""
