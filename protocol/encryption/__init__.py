"""Encryption of what clients send."""
