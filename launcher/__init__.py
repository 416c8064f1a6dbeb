"""The commands that start and stop serving jobs, and the configuration of a job."""
