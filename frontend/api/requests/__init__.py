"""Requests that are queued now and whose results are fetched later: `/v1/requests`."""
