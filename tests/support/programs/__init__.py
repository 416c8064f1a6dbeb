"""Programs that run in a process of their own: in a test, by make, or by hand."""
