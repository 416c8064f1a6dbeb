"""The OpenAPI document of one model: the paths that predict, with its own inputs and outputs."""
