"""Culprits of failed batches: they are searched behind new batches, and their clients set apart."""
