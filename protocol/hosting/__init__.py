"""Changes of the models of a job that serves several, while it runs."""
