"""Configuration and the commands that start and stop serving jobs."""
