"""Models in a store: their addresses, and the local cache into which TaskManagers fetch them."""
