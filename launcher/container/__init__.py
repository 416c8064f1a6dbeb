"""The programs of the container images: Flink's processes in the foreground, and a health check."""
