"""Requests and responses over HTTP."""
