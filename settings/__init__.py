"""Settings of the job and of the HTTP front end: their sources, checks and messages."""
