"""Redis Streams source and Redis hash sink for PyFlink; they know nothing of models."""
