"""Texts as inputs: a `tokenizer.json` beside a model, and embeddings."""
