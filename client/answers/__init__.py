"""Answers that are more than one result: of many requests, and in pieces."""
