"""The layout of a job as measured on this machine: copies of the model, threads of each, and the largest batch."""
