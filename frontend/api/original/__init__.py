"""The API of the original's front end, over HTTP and gRPC."""
