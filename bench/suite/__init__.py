"""The project's own benchmark: what `make bench` measures."""
