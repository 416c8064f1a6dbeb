"""Listening: HTTP, gRPC, and what guards both."""
