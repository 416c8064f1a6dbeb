"""The HTTP and gRPC front end of the jobs."""
