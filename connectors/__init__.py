"""Redis Streams source and Redis hash sink for PyFlink, independent of models."""
