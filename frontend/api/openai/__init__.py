"""The paths of OpenAI's API that models of texts fit: `/v1/completions` and `/v1/embeddings`."""
