"""The language that client, job and front end speak through Redis."""
