"""Connections to Redis, and what an address and options of one say."""
