"""Asynchronous requests: `/v1/requests`."""
