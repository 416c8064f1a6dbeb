"""The HTTP and gRPC servers, and the limits that apply to both."""
