"""The requests of an event loop, sent and answered together."""
