"""The layout of a job as measured on this machine: copies of the model, threads of each, and the largest batch."""

PROVISIONAL = "provisional, as "
"""What the line of a layout has if the next start measures again, before the reason."""
