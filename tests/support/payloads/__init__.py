"""Models, entries, texts and files that tests send or load."""
