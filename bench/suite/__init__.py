"""The project's own benchmark, run by `make bench`."""
