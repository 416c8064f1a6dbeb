"""Admission of requests: API keys, rates, requests in flight, memory of bodies, open files."""
